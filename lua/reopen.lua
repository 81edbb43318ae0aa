-- reopen: lets a dead message run again. A message is dead if its outcome says so.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone; absent if its slot moves, and then the caller deletes it
-- ARGV[1]  owner, of this reopening
-- ARGV[2]  retention, ms
-- ARGV[3]  the outcome
-- ARGV[4]  cause, text
--
-- Returns, and changes the state:
--   'ok'          COMPLETED with this outcome -> FAILED, not free, without an attempt, and with the history of a takeover;
--                 a repeated call returns the same
--   'lost'        absent, STARTED, FAILED, or COMPLETED with another outcome; nothing changes
--   'unreadable'  the string is not a record of format 1; nothing changes
--
-- The new fence must be higher than that of the COMPLETED record, which does not contain it. A fence is the server's time at
-- the claim, or a little more if there were other claims in the same µs. So the time now plus a millisecond is higher.
--
-- DEL or PEXPIRE is the first write, because a full server accepts a script whose first write needs no memory.
local record = redis.call('GET', KEYS[1])

-- [record.lua]

if not record then return 'lost' end
record = in_format_1(record)
if not readable(record) then return 'unreadable' end
if state(record) == FAILED and owner(record) == ARGV[1] then return 'ok' end
if state(record) ~= COMPLETED or string.sub(record, 59) ~= ARGV[3] then return 'lost' end
local time = string.format('%016.0f', now() + 1000)
if KEYS[2] then redis.call('DEL', KEYS[2]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local beginning = '1' .. FAILED .. '11000000' .. time .. fingerprint(record)
redis.call('SET', KEYS[1], beginning .. time .. ARGV[1] .. NONE .. '00' .. ARGV[4], 'PX', ARGV[2])
return 'ok'
