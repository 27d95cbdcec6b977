//! Settings of millstream that `--sweep` compares.

use std::time::Duration;

use millstream::net::TcpListenerBuilder;

/// Settings that differ from the defaults. `None` leaves the default.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    gather: Option<Duration>,
    high_mark: Option<usize>,
    adaptive: Option<(usize, usize)>,
    pub(crate) per_core: bool,
}

impl Settings {
    pub(crate) fn parse(texts: &[String]) -> Result<Self, String> {
        let mut settings = Self::default();
        for text in texts {
            let (name, value) = text.split_once('=').ok_or_else(|| format!("--set {text}: give NAME=VALUE"))?;
            let number = |value: &str| value.parse::<u32>().map_err(|e| format!("--set {text}: {e}"));
            match name {
                "gather-us" => settings.gather = Some(Duration::from_micros(number(value)?.into())),
                "high-mark-kib" => settings.high_mark = Some((number(value)? as usize) << 10),
                "adaptive-kib" => {
                    let (low, high) = value.split_once('-').ok_or_else(|| format!("--set {text}: give LOW-HIGH"))?;
                    let bounds = ((number(low)? as usize) << 10, (number(high)? as usize) << 10);
                    if bounds.0 > bounds.1 {
                        return Err(format!("--set {text}: the lower bound comes first"));
                    }
                    settings.adaptive = Some(bounds);
                }
                "per-core" => settings.per_core = number(value)? != 0,
                _ => return Err(format!("--set {text}: no such setting")),
            }
        }
        Ok(settings)
    }

    pub(crate) fn apply(&self, mut builder: TcpListenerBuilder) -> TcpListenerBuilder {
        if let Some(limit) = self.gather {
            builder = builder.gather_limit(limit);
        }
        if let Some(bytes) = self.high_mark {
            builder = builder.high_mark(bytes);
        }
        if let Some((low, high)) = self.adaptive {
            builder = builder.adaptive_high_mark(low..=high);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_refused() {
        let parse = |text: &str| Settings::parse(&[text.to_owned()]);
        assert_eq!(parse("gather-us=500").unwrap().gather, Some(Duration::from_micros(500)));
        assert_eq!(parse("high-mark-kib=16").unwrap().high_mark, Some(16 << 10));
        assert_eq!(parse("adaptive-kib=8-1024").unwrap().adaptive, Some((8 << 10, 1 << 20)));
        assert!(parse("per-core=1").unwrap().per_core);
        for wrong in ["gather-us", "gather-us=x", "adaptive-kib=9", "adaptive-kib=9-8", "speed=1"] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
