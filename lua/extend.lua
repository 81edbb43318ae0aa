-- extend: starts the lease and the retention anew, because the run goes on.
--
-- KEYS[1]  the record
-- KEYS[2]  the steps of its operation; absent if it has none
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  lease, µs
-- ARGV[4]  retention, ms
--
-- Returns, and changes the state:
--   'ok'          STARTED -> STARTED, also if the lease is over and no other claim has taken over
--   'gone'        absent; nothing changes
--   'lost'        another claim, or no longer STARTED; nothing changes
--   'unreadable'  the string is not a record of format 1; nothing changes
--
-- PEXPIRE is the first write, because a full server accepts a script whose first write needs no memory.
local record = redis.call('GET', KEYS[1])

-- [record.lua]

if not record then return 'gone' end
local stored = record
record = in_format_1(record, ARGV[1], ARGV[2])
if not readable(record) then return 'unreadable' end
if state(record) ~= STARTED or not holds(record, ARGV[1], ARGV[2]) then return 'lost' end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
local lease = string.format('%016.0f', now() + ARGV[3])
if stored == record then
  redis.call('SETRANGE', KEYS[1], '58', lease)
else
  redis.call('SET', KEYS[1], string.sub(record, 1, 58) .. lease .. string.sub(record, 75), 'PX', ARGV[4])
end
if KEYS[2] then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
return 'ok'
