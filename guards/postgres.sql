-- A guard by Holdfast: holdfast_enter(key, token), and the tables that let nobody write without it.
-- May be run again; `--undo` prints how to remove it. See doc/guards.md.

BEGIN;
SET LOCAL client_min_messages = warning;

-- The highest token that has entered each key, and the transaction that did last.
CREATE TABLE IF NOT EXISTS @FENCE@ (
    key text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,
    txid bigint NOT NULL
) WITH (fillfactor = 50);
REVOKE ALL ON @FENCE@ FROM PUBLIC;

-- To be called first in a transaction, before anything is read. Until its end nobody else enters
-- the key. LOST1: the token is over, or never was.
CREATE OR REPLACE FUNCTION @ENTER@(key text, token bigint) RETURNS void
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
    -- Is it a grant that lives? Nothing is locked here: what happens later is the fence's affair.
    SELECT format, owner, granted, expires_us, flags, others INTO r FROM @LOCKS@ WHERE key = $1;
    IF NOT FOUND OR r.owner = '' THEN
        lowest := NULL;
    ELSIF r.format <> 1 THEN
        RAISE EXCEPTION 'holdfast: the lock of % is of another version', quote_literal($1)
            USING ERRCODE = 'LOST1';
    ELSE
        -- Of several holders the one with the smallest token is admitted, too.
        SELECT CASE WHEN bool_or(h.token = $2) THEN min(h.token) END INTO lowest FROM (
            SELECT r.granted, r.expires_us, r.flags
            UNION ALL
            SELECT (o ->> 'token')::bigint, coalesce((o ->> 'expires_us')::bigint, 0),
                   coalesce((o ->> 'flags')::bigint, 0)
            FROM jsonb_array_elements(r.others::jsonb) AS o
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
    WHERE f.token <= $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'holdfast: token % of % is over: a later one has entered', $2,
            quote_literal($1) USING ERRCODE = 'LOST1';
    END IF;
END
@DOLLAR@;
@if TABLE

SELECT t.@COLUMN@ FROM @TABLE@ AS t LIMIT 0; -- is there such a column?
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
        now_key := @PREFIX@ || NEW.@COLUMN@;
        PERFORM FROM @FENCE@ AS f WHERE f.key = now_key AND f.txid = txid_current();
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast: % written without holdfast_enter',
                coalesce(quote_literal(now_key), 'a row without a key') USING ERRCODE = 'LOST2';
        END IF;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        old_key := @PREFIX@ || OLD.@COLUMN@;
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

DROP TRIGGER IF EXISTS holdfast_guard ON @TABLE@;
CREATE TRIGGER holdfast_guard AFTER INSERT OR UPDATE OR DELETE ON @TABLE@
    FOR EACH ROW EXECUTE PROCEDURE @CHECK@();
DROP TRIGGER IF EXISTS holdfast_guard_all ON @TABLE@;
CREATE TRIGGER holdfast_guard_all BEFORE TRUNCATE ON @TABLE@
    FOR EACH STATEMENT EXECUTE PROCEDURE @CHECK@();
@end

COMMIT;
