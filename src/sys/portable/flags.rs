//! Flags of calls on files, by the names of rustix, as far as they have a meaning here.

/// Defines a set of flags.
macro_rules! flags {
    ($name:ident: $($flag:ident = $bits:expr;)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name(u32);

        impl $name {
            $(pub(crate) const $flag: Self = Self($bits as u32);)*

            pub(crate) const fn empty() -> Self {
                Self(0)
            }

            pub(crate) const fn is_empty(self) -> bool {
                self.0 == 0
            }

            pub(crate) const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            pub(crate) const fn bits(self) -> u32 {
                self.0
            }

            pub(crate) const fn from_bits_retain(bits: u32) -> Self {
                Self(bits)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::ops::Sub for $name {
            type Output = Self;

            fn sub(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }
    };
}

// The values of the system, so that flags of users keep their meaning.
#[cfg(unix)]
flags! { OFlags:
    RDONLY = libc::O_RDONLY;
    WRONLY = libc::O_WRONLY;
    RDWR = libc::O_RDWR;
    ACCMODE = libc::O_ACCMODE;
    APPEND = libc::O_APPEND;
    CREATE = libc::O_CREAT;
    EXCL = libc::O_EXCL;
    TRUNC = libc::O_TRUNC;
    NONBLOCK = libc::O_NONBLOCK;
    NOCTTY = libc::O_NOCTTY;
    // Linux's alone.
    PATH = 1u32 << 31;
    TMPFILE = 1u32 << 30;
}

#[cfg(windows)]
flags! { OFlags:
    RDONLY = 0;
    WRONLY = 1;
    RDWR = 2;
    ACCMODE = 3;
    APPEND = 1 << 2;
    CREATE = 1 << 3;
    EXCL = 1 << 4;
    TRUNC = 1 << 5;
    NONBLOCK = 1 << 6;
    NOCTTY = 1 << 7;
    PATH = 1 << 8;
    TMPFILE = 1 << 9;
}

flags! { Mode: RUSR = 0o400; WUSR = 0o200; }

impl Mode {
    pub(crate) const fn from_raw_mode(mode: u32) -> Self {
        Self(mode)
    }
}

flags! { ResolveFlags: BENEATH = 1; NO_MAGICLINKS = 2; CACHED = 4; }

flags! { RenameFlags: NOREPLACE = 1; EXCHANGE = 2; }

flags! { FallocateFlags: KEEP_SIZE = 1; }

flags! { PollFlags: IN = 1; OUT = 2; }
