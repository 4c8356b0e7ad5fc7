-- Without the next line psql goes on after an error, and exits with 0. Other clients: delete it.
\set ON_ERROR_STOP on
BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;
@if TABLE
-- Removes Holdfast's guard of one table. holdfast_enter stays, for other tables: `guard postgres
-- --undo` without a table removes that.
DO @DOLLAR@
DECLARE
    guarded regclass := to_regclass(@TABLE_TEXT@);
    mine oid[];
    old record;
BEGIN
    -- Finds the triggers that are there: the table may have had another name when they were made. A
    -- trigger that came with the guard of a parent belongs to that guard.
    SELECT array_agg(DISTINCT g.tgfoid) INTO mine FROM pg_trigger AS g
    WHERE g.tgrelid = guarded AND left(g.tgname, 14) = 'holdfast_guard' AND NOT EXISTS (
        SELECT FROM pg_depend AS d WHERE d.classid = 'pg_trigger'::regclass AND d.objid = g.oid
            AND d.refclassid = d.classid)
        AND right(g.tgname, 4) <> '_all';
    IF mine IS NULL THEN
        RAISE WARNING 'holdfast: % has no guard: nothing is undone', @TABLE_TEXT@;
    END IF;
    FOR old IN SELECT g.tgname, g.tgrelid::regclass AS of FROM pg_trigger AS g
        WHERE g.tgfoid = ANY (mine) AND (g.tgrelid = guarded OR right(g.tgname, 4) = '_all')
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_trigger'::regclass
                AND d.objid = g.oid AND d.refclassid = d.classid)
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', old.tgname, old.of);
    END LOOP;
    FOR old IN SELECT p.oid::regprocedure AS of FROM pg_proc AS p
        WHERE p.oid = ANY (mine) AND NOT EXISTS (
            SELECT FROM pg_trigger AS g WHERE g.tgfoid = p.oid)
    LOOP
        EXECUTE format('DROP FUNCTION %s', old.of);
    END LOOP;
END
@DOLLAR@;
@end
@if NO_TABLE
-- Removes what all guards of Holdfast share. First remove the guard of each table, by its own undo.
DO @DOLLAR@
DECLARE
    guarded text;
    old record;
BEGIN
    SELECT string_agg(DISTINCT g.tgrelid::regclass::text, ', ') INTO guarded
    FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = @HOME_TEXT@ AND left(p.proname, 15) = 'holdfast_guard_';
    IF guarded IS NOT NULL THEN
        RAISE EXCEPTION 'holdfast: the guard of % needs it: undo that first', guarded;
    END IF;
    IF to_regclass(@FENCE_TEXT@) IS NULL THEN
        RAISE WARNING 'holdfast: there is no %: nothing is undone', @FENCE_TEXT@;
    END IF;
    -- The functions of tables that are gone.
    FOR old IN SELECT p.oid::regprocedure AS of FROM pg_proc AS p
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = @HOME_TEXT@ AND left(p.proname, 15) = 'holdfast_guard_'
    LOOP
        EXECUTE format('DROP FUNCTION %s', old.of);
    END LOOP;
END
@DOLLAR@;
DROP FUNCTION IF EXISTS @ENTER@(text, bigint);
DROP FUNCTION IF EXISTS @ENTER@(text, bigint, txid_snapshot);
DROP TABLE IF EXISTS @FENCE@;
@end
COMMIT;
