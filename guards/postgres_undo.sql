BEGIN;
SET LOCAL client_min_messages = warning;
@if TABLE
-- Removes Holdfast's guard of one table. holdfast_enter stays, for other tables: `guard postgres
-- --undo` without a table removes that.
DROP TRIGGER IF EXISTS holdfast_guard ON @TABLE@;
DROP TRIGGER IF EXISTS holdfast_guard_all ON @TABLE@;
DROP FUNCTION IF EXISTS @CHECK@();
@end
@if NO_TABLE
-- Removes what Holdfast's guards of tables share. Those first: each has an undo of its own.
DROP FUNCTION IF EXISTS @ENTER@(text, bigint);
DROP TABLE IF EXISTS @FENCE@;
@end
COMMIT;
