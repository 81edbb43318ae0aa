-- fail: the run ended without an outcome to keep; the key may be claimed again at once.
--
-- KEYS[1]  the record
-- ARGV[1]  owner
-- ARGV[2]  fence; '0' when begin's answer never came
-- ARGV[3]  retention, ms
-- ARGV[4]  '1' to free the key for a request with another fingerprint, if no earlier run may have had effects; else '0'
-- ARGV[5]  cause, text
--
-- Returns:
--   'ok'          STARTED -> FAILED; the same answer again to the claim that failed
--   'lost'        absent, another claim, or COMPLETED; nothing changes
--   'unreadable'  not a record of format 1
--
-- PEXPIRE comes first: a full server accepts a script whose first write needs no memory.
local record = redis.call('GETRANGE', KEYS[1], '0', '105') -- not a whole outcome: a fail follows each replay that had no answer

-- [record.lua]

if record == '' then return 'lost' end
if not readable(record) then return 'unreadable' end
if state(record) == COMPLETED or not holds(record, ARGV[1], ARGV[2]) then return 'lost' end
if state(record) == FAILED then return 'ok' end
local bound = ARGV[4] == '1' and history(record) == '0' and string.rep('\0', 32) or fingerprint(record)
local header = '1' .. FAILED .. history(record) .. '0' .. string.sub(record, 5, 26) .. bound
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[1], header .. string.sub(record, 59) .. ARGV[5], 'PX', ARGV[3])
wake(record)
return 'ok'
