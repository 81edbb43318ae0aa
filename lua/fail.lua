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
local record = redis.call('GETRANGE', KEYS[1], 0, 105)

-- [record.lua]

local head = string.sub(record, 1, 90)
if head == '' then return 'lost' end
if not readable(head) then return 'unreadable' end
if not holds(head, ARGV[1], ARGV[2]) or state(head) == COMPLETED then return 'lost' end
if state(head) == FAILED then return 'ok' end
local bound = ARGV[4] == '1' and history(head) == '0' and string.rep('\0', 32) or fingerprint(head)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local origin = attempt(head) > 1 and first(record) or ''
redis.call('SET', KEYS[1], '1' .. FAILED .. history(head) .. '0' .. string.sub(head, 5, 42) .. bound .. owner(head) .. origin .. ARGV[5], 'PX', ARGV[3])
wake(head)
return 'ok'
