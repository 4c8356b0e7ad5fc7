BEGIN IMMEDIATE;
@if TABLE
-- Removes Holdfast's guard of one table. holdfast_enter stays, for other tables: `guard sqlite
-- --undo` without a table removes that.
DROP TRIGGER IF EXISTS @ON_INSERT@;
DROP TRIGGER IF EXISTS @ON_UPDATE@;
DROP TRIGGER IF EXISTS @ON_DELETE@;
@end
@if NO_TABLE
-- Removes what Holdfast's guards of tables share. Those first: each has an undo of its own.
DROP VIEW IF EXISTS @ENTER@;
DROP TABLE IF EXISTS @FENCE@;
DROP TABLE IF EXISTS @NOBODY@;
@end
COMMIT;
