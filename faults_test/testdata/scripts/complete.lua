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
--   'lost'        absent, another claim, FAILED, or COMPLETED with another record; nothing changes
--   'unreadable'  not a record of format 1
--
-- A finished run must be recorded, also by a server that is full. It refuses the SET, but accepts a script whose first write
-- needs no memory; only then a PEXPIRE goes first. Anything else that a SET is refused for, the second one raises.
local record = redis.call('GET', KEYS[1])
local tell -- who waits
if ARGV[5] or not record or string.sub(record, 1, 2) ~= '11' or string.sub(record, 4, 4) ~= '0'
  or string.sub(record, 75, 90) ~= ARGV[1] or string.sub(record, 11, 26) ~= ARGV[2] then -- not STARTED, or not that alone

-- [record.lua]

  if not record then return 'lost' end
  if not readable(record) then return 'unreadable' end
  if state(record) == COMPLETED then return record == ARGV[4] and 'ok' or 'lost' end
  if state(record) ~= STARTED or not holds(record, ARGV[1], ARGV[2]) then return 'lost' end
  tell = wake
end
if redis.pcall('SET', KEYS[1], ARGV[4], 'PX', ARGV[3]).err then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
end
if ARGV[5] then
  redis.call('DEL', KEYS[3])
  if ARGV[5] ~= '0' then redis.call('SET', KEYS[2], '', 'PX', ARGV[5]) end
end
if tell then tell(record) end
return 'ok'
