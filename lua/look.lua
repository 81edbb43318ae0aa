-- look: reads what an operator may know of a record, without its outcome.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone
-- KEYS[3]  the steps of its operation, a hash: see results.lua
--
-- ARGV[1]  '1' to return the results of steps as well; otherwise absent
--
-- Returns {status, now-µs, time to live in ms, length, steps, record}, and changes nothing. For each status, the states in which
-- it is returned:
--   'record'      STARTED, COMPLETED or FAILED. record has the first 600 bytes, which are all fields before an outcome; steps is
--                 how many results the next run would find
--   'expired'     absent, with a tombstone, whose time to live this is
--   'absent'      absent, without a tombstone
--   'unreadable'  the key holds something else than a record of format 1
-- With ARGV[1] 'record' has a seventh value, the fields of the steps and their values, alternating: see results.lua.
--
-- If another program has written something else than a hash in place of the steps, there are none: a Scan must not end there.
local kind = redis.call('TYPE', KEYS[1]).ok
local record = kind == 'string' and redis.call('GETRANGE', KEYS[1], '0', '599') or ''

-- [record.lua]

record = in_format_1(record)
local time = string.format('%016.0f', now())
if kind == 'none' then
  local left = redis.call('PTTL', KEYS[2])
  return {left == -2 and 'absent' or 'expired', time, math.max(left, 0), 0, 0, ''}
end
local left = redis.call('PTTL', KEYS[1])
if not readable(record) then return {'unreadable', time, math.max(left, 0), 0, 0, ''} end
local steps, results = 0, {}
if state(record) ~= COMPLETED and redis.pcall('HGET', KEYS[3], '') == fingerprint(record) .. operation(record) then
  steps = redis.call('HLEN', KEYS[3]) - 2
  if ARGV[1] then results = redis.call('HGETALL', KEYS[3]) end
end
return {'record', time, math.max(left, 0), redis.call('STRLEN', KEYS[1]), steps, record, ARGV[1] and results}
