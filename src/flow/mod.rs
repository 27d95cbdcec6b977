//! Policies: how large a buffer should be, how fast bytes may go. Pure: the clock is an argument, nothing is called.
