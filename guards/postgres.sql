-- A guard by Holdfast: holdfast_enter(key, token), and tables that refuse writes without it.
-- You may run it again; `--undo` prints how to remove it. See doc/guards.md.
-- Without the next line psql goes on after an error, and exits with 0. Other clients: delete it.
\set ON_ERROR_STOP on

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;

-- The highest token that has entered each key, and the transaction that entered last.
CREATE TABLE IF NOT EXISTS @FENCE@ (
    key text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,
    txid bigint NOT NULL
) WITH (fillfactor = 50);
-- A role that owns these, or may change them, could act with the rights of this script's role.
DO @DOLLAR@
DECLARE
    whose text;
BEGIN
    SELECT string_agg(format('%s belongs to %s', o.what, o.role), ', ') INTO whose FROM (
        SELECT c.oid::regclass::text, c.relowner::regrole::text FROM pg_class AS c
        WHERE c.oid = to_regclass(@FENCE_TEXT@)
        UNION ALL
        SELECT p.oid::regprocedure::text, p.proowner::regrole::text FROM pg_proc AS p
        WHERE p.oid = to_regprocedure(@ENTER_TEXT@ || '(text, bigint, txid_snapshot)')
            OR p.oid = to_regprocedure(@CHECK_TEXT@ || '()')
    ) AS o (what, role) WHERE o.role <> quote_ident(current_user);
    IF whose IS NOT NULL THEN
        RAISE EXCEPTION 'holdfast: %, and not to %', whose, quote_ident(current_user);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = to_regclass(@FENCE_TEXT@)
        AND c.relkind = 'r' AND NOT c.relhasrules AND NOT EXISTS (
            SELECT FROM pg_trigger AS g WHERE g.tgrelid = c.oid)) THEN
        RAISE EXCEPTION 'holdfast: % is no table for this', @FENCE_TEXT@;
    END IF;
END
@DOLLAR@;
REVOKE ALL ON @FENCE@ FROM PUBLIC;
-- After a dump of another server was restored: its transaction numbers mean nothing here.
UPDATE @FENCE@ AS f SET txid = 0 WHERE f.txid > txid_current();

-- Call it first in a transaction, before anything is read. Until the transaction ends, no other one
-- enters the key. LOST1: the token is over, or was never granted. 40001: another transaction has
-- entered since the calling statement began, so the other data that this statement
-- reads may be old: begin the transaction again. If the statement reads no other data, pass NULL as
-- the third argument.
DROP FUNCTION IF EXISTS @ENTER@(text, bigint); -- of an earlier version
CREATE OR REPLACE FUNCTION @ENTER@(key text, token bigint,
    since txid_snapshot DEFAULT txid_current_snapshot()) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS @DOLLAR@
#variable_conflict use_column
DECLARE
    lowest bigint := $2;
@if HERE
    r record;
    now_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
@end
BEGIN
    IF $1 IS NULL OR $2 IS NULL OR $2 <= 0 OR $2 >= 9007199254740992 THEN
        RAISE EXCEPTION 'holdfast: enter needs a key and a token' USING ERRCODE = 'LOST1';
    END IF;
@if HERE
    -- Is the grant in force? The lock's row isn't locked: if the grant ends later, the fence
    -- refuses late writes.
    SELECT format, owner, token, expires_us, more INTO r FROM @LOCKS@ WHERE key = $1;
    IF NOT FOUND OR r.owner = '' THEN
        lowest := NULL;
    ELSIF r.format <> 2 THEN
        RAISE EXCEPTION 'holdfast: the lock of % is of another version', quote_literal($1)
            USING ERRCODE = 'LOST1';
    ELSIF r.more = '' THEN -- a plain hold
        lowest := CASE WHEN r.token = $2 AND r.expires_us > now_us THEN r.token END;
    ELSIF EXISTS (SELECT FROM jsonb_object_keys(r.more::jsonb) AS k WHERE k NOT IN ('bell',
        'claim_ms', 'flags', 'holders', 'limit', 'mode', 'owner', 'session', 'token')) THEN
        RAISE EXCEPTION 'holdfast: the lock of % says more than this guard knows',
            quote_literal($1) USING ERRCODE = 'LOST1';
    ELSE
        -- Of several holders the one with the smallest token is admitted, too.
        SELECT CASE WHEN bool_or(h.token = $2) THEN min(h.token) END INTO lowest FROM (
            SELECT coalesce((r.more::jsonb ->> 'token')::bigint, r.token), r.expires_us,
                   coalesce((r.more::jsonb ->> 'flags')::bigint, 0)
            UNION ALL
            SELECT (o ->> 'token')::bigint, coalesce((o ->> 'expires_us')::bigint, 0),
                   coalesce((o ->> 'flags')::bigint, 0)
            FROM jsonb_array_elements(coalesce(r.more::jsonb -> 'holders', '[]')) AS o
        ) AS h (token, expires_us, flags)
        WHERE (h.expires_us = 0 OR h.expires_us > now_us) AND h.flags & 4 = 0;
    END IF;
    IF lowest IS NULL THEN
        RAISE EXCEPTION 'holdfast: token % of % is over', $2, quote_literal($1)
            USING ERRCODE = 'LOST1';
    END IF;
@end
    INSERT INTO @FENCE@ AS f (key, token, txid) VALUES ($1, lowest, txid_current())
    ON CONFLICT (key) DO UPDATE SET token = greatest(f.token, excluded.token), txid = excluded.txid
    WHERE f.token <= $2
        AND ($3 IS NULL OR f.txid = txid_current() OR txid_visible_in_snapshot(f.txid, $3));
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM @FENCE@ AS f WHERE f.key = $1 AND f.token <= $2) THEN
            RAISE EXCEPTION 'holdfast: % was entered since this statement began: try again',
                quote_literal($1) USING ERRCODE = 'serialization_failure';
        END IF;
        RAISE EXCEPTION 'holdfast: token % of % is over: a later one has entered', $2,
            quote_literal($1) USING ERRCODE = 'LOST1';
    END IF;
END
@DOLLAR@;
@if TABLE

SELECT t.@COLUMN@ FROM @TABLE@ AS t LIMIT 0; -- is there such a column?
DO @DOLLAR@
DECLARE
    guarded regclass := @TABLE_TEXT@::regclass;
    others text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class WHERE oid = guarded AND relkind IN ('r', 'p')) THEN
        RAISE EXCEPTION 'holdfast: % is no table of this database', guarded;
    END IF;
    SELECT string_agg(i.inhrelid::regclass::text, ', ') INTO others
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhparent
    WHERE c.oid = guarded AND c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_trigger AS g
        WHERE g.tgrelid = i.inhrelid AND left(g.tgname, 14) = 'holdfast_guard');
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'holdfast: what changes % changes rows of %: guard those first',
            guarded, others;
    END IF;
    SELECT string_agg(g.tgrelid::regclass::text, ', ') INTO others
    FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid
    WHERE p.oid = to_regprocedure(@CHECK_TEXT@ || '()') AND g.tgrelid <> guarded
        AND right(g.tgname, 4) <> '_all' AND NOT EXISTS (
            SELECT FROM pg_depend AS d WHERE d.classid = 'pg_trigger'::regclass
                AND d.objid = g.oid AND d.refclassid = d.classid);
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'holdfast: % was called % when it was guarded: undo its guard first',
            others, guarded;
    END IF;
END
@DOLLAR@;
-- LOST2: a write without entering.
-- A key reads the same whatever the session's settings are.
CREATE OR REPLACE FUNCTION @CHECK@() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' AS @DOLLAR@
DECLARE
    now_key text;
    old_key text;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'holdfast: a guarded table is not truncated' USING ERRCODE = 'LOST2';
    END IF;
    IF TG_OP <> 'DELETE' THEN
        now_key :=
            /* If this fails, the column is gone or has another name: guard this table again. */
            @PREFIX@::text || NEW.@COLUMN@::text;
        PERFORM FROM @FENCE@ AS f WHERE f.key = now_key AND f.txid = txid_current();
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast: % written without holdfast_enter',
                coalesce(quote_literal(now_key), 'a row without a key') USING ERRCODE = 'LOST2';
        END IF;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        old_key :=
            /* If this fails, the column is gone or has another name: guard this table again. */
            @PREFIX@::text || OLD.@COLUMN@::text;
        IF TG_OP = 'UPDATE' AND old_key = now_key THEN
            RETURN NULL;
        END IF;
        PERFORM FROM @FENCE@ AS f WHERE f.key = old_key AND f.txid = txid_current();
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast: % written without holdfast_enter',
                coalesce(quote_literal(old_key), 'a row without a key') USING ERRCODE = 'LOST2';
        END IF;
    END IF;
    RETURN NULL;
END
@DOLLAR@;

DO @DOLLAR@
DECLARE
    guarded regclass := @TABLE_TEXT@::regclass;
    mine oid[];
    old record;
    part regclass;
BEGIN
    -- Removes the triggers of an earlier guard, even if the table had another name then. A trigger
    -- that depends on another one is on a partition, and belongs to its parent's guard.
    SELECT array_agg(DISTINCT g.tgfoid) INTO mine FROM pg_trigger AS g
    WHERE g.tgrelid = guarded AND left(g.tgname, 14) = 'holdfast_guard' AND NOT EXISTS (
        SELECT FROM pg_depend AS d WHERE d.classid = 'pg_trigger'::regclass AND d.objid = g.oid
            AND d.refclassid = d.classid)
        AND right(g.tgname, 4) <> '_all';
    FOR old IN SELECT g.tgname, g.tgrelid::regclass AS of FROM pg_trigger AS g
        WHERE g.tgfoid = ANY (mine) AND (g.tgrelid = guarded OR right(g.tgname, 4) = '_all')
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_trigger'::regclass
                AND d.objid = g.oid AND d.refclassid = d.classid)
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', old.tgname, old.of);
    END LOOP;
    FOR old IN SELECT p.oid::regprocedure AS of FROM pg_proc AS p
        WHERE p.oid = ANY (mine) AND p.oid <> to_regprocedure(@CHECK_TEXT@ || '()')
            AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgfoid = p.oid)
    LOOP
        EXECUTE format('DROP FUNCTION %s', old.of);
    END LOOP;
    EXECUTE format('CREATE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW '
        'EXECUTE PROCEDURE %s()', @CHECK_NAME@, guarded, @CHECK_TEXT@);
    -- The trigger for TRUNCATE has to be made on each partition.
    FOR part IN WITH RECURSIVE tree (oid) AS (
        SELECT guarded::oid
        UNION ALL
        SELECT i.inhrelid FROM pg_inherits AS i JOIN tree ON tree.oid = i.inhparent
            JOIN pg_class AS c ON c.oid = i.inhrelid WHERE c.relispartition
    ) SELECT tree.oid FROM tree JOIN pg_class AS c ON c.oid = tree.oid
        WHERE c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_trigger AS g
            WHERE g.tgrelid = tree.oid AND g.tgname = @CHECK_NAME@ || '_all')
    LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %s FOR EACH STATEMENT '
            'EXECUTE PROCEDURE %s()', @CHECK_NAME@ || '_all', part, @CHECK_TEXT@);
    END LOOP;
END
@DOLLAR@;
@end

COMMIT;
