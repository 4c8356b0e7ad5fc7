-- Without the next line sqlite3 goes on after an error. For another client delete it:
.bail on
BEGIN IMMEDIATE;
@if TABLE
-- Removes Holdfast's guard of one table. holdfast_enter stays, for other tables: `guard sqlite
-- --undo` without a table removes that.
SELECT 'holdfast: ' || @TABLE_TEXT@ || ' has no guard: nothing is undone'
WHERE NOT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger'
    AND lower(name) IN (lower(@ON_INSERT_TEXT@), lower(@ON_UPDATE_TEXT@), lower(@ON_DELETE_TEXT@)));
DROP TRIGGER IF EXISTS @ON_INSERT@;
DROP TRIGGER IF EXISTS @ON_UPDATE@;
DROP TRIGGER IF EXISTS @ON_DELETE@;
@end
@if NO_TABLE
-- Removes what all guards of Holdfast share. First remove the guard of each table, by its own undo.
SELECT 'holdfast: there is no holdfast_enter: nothing is undone'
WHERE NOT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = 'holdfast_enter');
SELECT DISTINCT 'holdfast: ' || tbl_name || ' is guarded' FROM sqlite_master
WHERE type = 'trigger' AND sql LIKE '%holdfast: written without%';
CREATE TEMP TABLE holdfast_guarded (name);
CREATE TEMP TRIGGER holdfast_refuses BEFORE INSERT ON holdfast_guarded
BEGIN
    SELECT RAISE(ROLLBACK, 'holdfast: guards of tables need it: undo those first');
END;
INSERT INTO temp.holdfast_guarded SELECT tbl_name FROM sqlite_master
WHERE type = 'trigger' AND sql LIKE '%holdfast: written without%';
DROP TABLE temp.holdfast_guarded;
DROP VIEW IF EXISTS @ENTER@;
DROP TABLE IF EXISTS @FENCE@;
DROP TABLE IF EXISTS @NOBODY@;
@end
COMMIT;
