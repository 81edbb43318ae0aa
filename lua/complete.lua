-- complete: keep the outcome.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone, KEYS[3] the steps of its runs; absent when ARGV[5] is
-- ARGV[1]  owner   ARGV[2]  fence   ARGV[3]  retention, ms
-- ARGV[4]  the whole COMPLETED record, header and outcome, made by the caller: nothing is copied here
-- ARGV[5]  how long the tombstone lives, ms; '0' for none; the steps have done their duty and go
--
-- Returns:
--   'ok'          STARTED -> COMPLETED, also when the lease is over and nobody has taken over;
--                 the same answer again to the claim that completed with this very record
--   'lost'        absent, another claim, FAILED, or COMPLETED with another outcome; nothing changes
--   'unreadable'  not a record of format 1
--
-- PEXPIRE comes first: a full server accepts a script whose first write needs no memory, and a finished run
-- must be recorded.
local head = redis.call('GETRANGE', KEYS[1], 0, 89)
if not ARGV[5] and #head == 90 and string.sub(head, 1, 2) == '11' and string.sub(head, 4, 4) == '0'
  and string.sub(head, 75, 90) == ARGV[1] and string.sub(head, 11, 26) == ARGV[2] then -- STARTED, and nobody waits
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
  return 'ok'
end

-- [record.lua]

if head == '' then return 'lost' end
if not readable(head) then return 'unreadable' end
if not holds(head, ARGV[1], ARGV[2]) then return 'lost' end
if state(head) == COMPLETED and redis.call('GET', KEYS[1]) == ARGV[4] then return 'ok' end
if state(head) ~= STARTED then return 'lost' end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
if ARGV[5] then
  redis.call('DEL', KEYS[3])
  if ARGV[5] ~= '0' then redis.call('SET', KEYS[2], '', 'PX', ARGV[5]) end
end
wake(head)
return 'ok'
