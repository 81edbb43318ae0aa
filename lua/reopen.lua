-- reopen: a message that is dead, which is what its outcome says, is to be handled again.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone; absent when the slot moves: then who calls deletes it
-- ARGV[1]  owner: who reopens it
-- ARGV[2]  retention, ms
-- ARGV[3]  the outcome
-- ARGV[4]  cause, text
--
-- Returns:
--   'ok'          COMPLETED with this outcome -> FAILED, bound to its request, without an attempt, as after a takeover;
--                 the same answer again to who reopened it
--   'lost'        absent, STARTED, FAILED, or COMPLETED with another outcome; nothing changes
--   'unreadable'  not a record of format 1
--
-- A COMPLETED record does not tell its fence. That is this server's time when it was claimed, or a bit more after other claims
-- at the same moment, so a millisecond more than the time now is higher.
--
-- DEL, or PEXPIRE, comes first: a full server accepts a script whose first write needs no memory.
local record = redis.call('GET', KEYS[1])

-- [record.lua]

if not record then return 'lost' end
if not readable(record) then return 'unreadable' end
if state(record) == FAILED and owner(record) == ARGV[1] then return 'ok' end
if state(record) ~= COMPLETED or string.sub(record, 59) ~= ARGV[3] then return 'lost' end
local time = string.format('%016.0f', now() + 1000)
if KEYS[2] then redis.call('DEL', KEYS[2]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('SET', KEYS[1], '1' .. FAILED .. '11000000' .. time .. fingerprint(record) .. time .. ARGV[1] .. NONE .. '00' .. ARGV[4], 'PX', ARGV[2])
return 'ok'
