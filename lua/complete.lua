-- complete: keeps the outcome.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone; absent if ARGV[5] is
-- KEYS[3]  the steps of its operation; absent if ARGV[5] is
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  retention, ms
-- ARGV[4]  the whole COMPLETED record, header and outcome; the caller makes it, so that this script copies nothing
-- ARGV[5]  how long the tombstone lives, ms; '0' if there is none. If it is not absent, the steps are deleted
--
-- Returns, and changes the state:
--   'ok'          STARTED -> COMPLETED, also if the lease is over and no other claim has taken over;
--                 a repeated call with the same record returns the same
--   'gone'        absent; nothing changes
--   'lost'        another claim, FAILED, or COMPLETED with another record; nothing changes
--   'unreadable'  the string is not a record of format 1; nothing changes
--
-- A full server must store the outcome of a finished run. It refuses a script whose first write needs memory, and accepts one
-- that begins with PEXPIRE. That costs time, so PEXPIRE is sent only after a SET was refused. If the SET was refused for
-- another reason, the second SET raises the error.
local record = redis.call('GET', KEYS[1])
local notify -- publishes the end of the claim; nil if no request can have subscribed
if ARGV[5] or not record or #record ~= 90 or string.sub(record, 75, 90) ~= ARGV[1]
  -- a native claim: only its owner's last claim has these last digits of the fence
  or (string.sub(record, 1, 10) ~= '2100000001' or string.sub(record, 24, 26) ~= string.sub(ARGV[2], 14))
  and (string.sub(record, 1, 2) ~= '11' or string.sub(record, 4, 4) ~= '0' or string.sub(record, 11, 26) ~= ARGV[2]) then
  -- not the usual case

-- [record.lua]

  if not record then return 'gone' end
  record = in_format_1(record, ARGV[1], ARGV[2])
  if not readable(record) then return 'unreadable' end
  if state(record) == COMPLETED then return record == ARGV[4] and 'ok' or 'lost' end
  if state(record) ~= STARTED or not holds(record, ARGV[1], ARGV[2]) then return 'lost' end
  notify = wake
end
if redis.pcall('SET', KEYS[1], ARGV[4], 'PX', ARGV[3]).err then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
end
if ARGV[5] then
  redis.call('DEL', KEYS[3])
  if ARGV[5] ~= '0' then redis.call('SET', KEYS[2], '', 'PX', ARGV[5]) end
end
if notify then notify(record) end
return 'ok'
