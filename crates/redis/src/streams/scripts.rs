//! The scripts: each is one step for Redis. They return -1 for a lost claim, -2 for a log that is gone.
//!
//! A log with fewer events than it had is removed, so that no id is used for another event: Redis may lose the key of the
//! events alone, by an eviction. A reader beyond the end of a log, as after a restart from an older snapshot, is told that
//! it is gone.
//!
//! The epoch tells a log from a later one with the same name. Redis gives the times, so the clocks of the instances do
//! not matter.

/// A script, by its place in [`ALL`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Script {
    Open,
    Claim,
    Append,
    Read,
    Beat,
    Stop,
    Release,
}

pub(super) const ALL: [&str; 7] = [OPEN, CLAIM, APPEND, READ, BEAT, STOP, RELEASE];

/// Arguments: the epoch of a new log or nothing, and its time to live.
const OPEN: &str = "
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch and ARGV[1] ~= '' then
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return epoch";

/// Arguments: the epoch, the time of a claim, its token, and the time to live. Returns 0 if there is another
/// claim, or an end.
///
/// The token is random: a number that Redis counts is given again if a restart loses the latest claim.
const CLAIM: &str = "
local log = redis.call('HMGET', KEYS[1], 'epoch', 'until', 'end', 'events')
if log[1] ~= ARGV[1] then return -2 end
if redis.call('XLEN', KEYS[2]) < tonumber(log[4] or 0) then
  redis.call('DEL', KEYS[1], KEYS[2])
  return -2
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if log[3] or (log[2] and tonumber(log[2]) > now) then return 0 end
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2]), 'token', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1";

/// Arguments: the epoch, the token, the time of a claim, the number of the first event, the end and its time to live or
/// nothing, the events.
const APPEND: &str = "
local log = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'end', 'events')
if log[1] ~= ARGV[1] then return -2 end
if log[2] ~= ARGV[2] then return -1 end
local have, first = redis.call('XLEN', KEYS[2]), tonumber(ARGV[4])
if first > have or have < tonumber(log[4] or 0) then
  redis.call('DEL', KEYS[1], KEYS[2])
  return -2
end
if log[3] then return 0 end
for at = 7, #ARGV do
  local number = first + at - 7
  if number >= have then redis.call('XADD', KEYS[2], string.format('%.0f-0', number + 1), 'e', ARGV[at]) end
end
if have == 0 and #ARGV > 6 then redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1])) end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local events = string.format('%.0f', math.max(have, first + #ARGV - 6))
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[3]), 'events', events)
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'end', ARGV[5])
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
redis.call('PUBLISH', KEYS[2], '')
return 0";

/// Arguments: the epoch, the number of the first event, and the size of the events. Returns 0, whether there are more
/// events, the end or nothing, the time to live, and the events.
const READ: &str = "
local log = redis.call('HMGET', KEYS[1], 'epoch', 'events', 'end')
local have, next = redis.call('XLEN', KEYS[2]), tonumber(ARGV[2])
local gone = {-2, 0, '', 0, {}}
if log[1] ~= ARGV[1] or next > have or have < tonumber(log[2] or 0) then return gone end
local events, size = {}, 0
while next < have and size < tonumber(ARGV[3]) do
  next = next + 1
  local id = string.format('%.0f-0', next)
  local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
  if not entry then return gone end
  events[#events + 1] = entry[2][2]
  size = size + #entry[2][2]
end
return {0, next < have and 1 or 0, log[3] or '', redis.call('PTTL', KEYS[1]), events}";

/// Arguments: the epoch, the token or nothing, the time of a claim, whether there are readers. Returns whether there is a
/// claim, whether a stop was requested, and the milliseconds since there were readers or -1.
const BEAT: &str = "
local log = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'until', 'stop', 'read')
if log[1] ~= ARGV[1] then return {-2} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local till, read = tonumber(log[3] or 0), tonumber(log[5] or 0)
if ARGV[2] ~= '' then
  if log[2] ~= ARGV[2] then return {-1} end
  till = now + ARGV[3]
  redis.call('HSET', KEYS[1], 'until', string.format('%.0f', till))
end
if ARGV[4] == '1' then
  read = now
  redis.call('HSET', KEYS[1], 'read', string.format('%.0f', now))
end
return {0, till > now and 1 or 0, log[4] and 1 or 0, read > 0 and now - read or -1}";

/// Argument: the epoch.
const STOP: &str = "
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -2 end
redis.call('HSET', KEYS[1], 'stop', 1)
return 0";

/// Arguments: the epoch, the token. The next claim need not wait for the end of this one.
const RELEASE: &str = "
local log = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'end')
if log[1] == ARGV[1] and log[2] == ARGV[2] and not log[3] then redis.call('HDEL', KEYS[1], 'until', 'token') end
return 0";
