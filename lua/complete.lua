-- complete: keep the outcome.
--
-- KEYS[1]  the record
-- ARGV[1]  owner   ARGV[2]  fence   ARGV[3]  retention, ms
-- ARGV[4]  the whole COMPLETED record, header and outcome, made by the caller: nothing is copied here
--
-- Returns:
--   'ok'          STARTED -> COMPLETED, also when the lease is over and nobody has taken over;
--                 the same answer again to the claim that completed with this very record
--   'lost'        absent, another claim, FAILED, or COMPLETED with another outcome; nothing changes
--   'unreadable'  not a record of format 1
--
-- PEXPIRE comes first: a full server accepts a script whose first write needs no memory, and a finished run
-- must be recorded.
local head = header()
if not head then return 'unreadable' end
if head == '' or not holds(head, ARGV[1], ARGV[2]) then return 'lost' end
if state(head) == COMPLETED and redis.call('GET', KEYS[1]) == ARGV[4] then return 'ok' end
if state(head) ~= STARTED then return 'lost' end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
return 'ok'
