-- A guard by Holdfast: holdfast_enter, and tables that refuse writes without it.
-- You may run it again; `--undo` prints how to remove it. See doc/guards.md.
-- Without the next line sqlite3 goes on after an error. For another client delete it:
.bail on
BEGIN IMMEDIATE;

-- The highest token that has entered each key, and the one with which the present transaction has.
-- COMMIT refuses a transaction that hasn't left (below), if the connection has
-- PRAGMA foreign_keys = ON: there is no row in the second table.
CREATE TABLE IF NOT EXISTS @NOBODY@ (token INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS @FENCE@ (
    key TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL,
    entered INTEGER REFERENCES @NOBODY@ (token) DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS @INDEX@ ON @FENCE@ (entered) WHERE entered IS NOT NULL;

-- INSERT INTO holdfast_enter (key, token) comes first in a transaction, before anything is read;
-- DELETE FROM holdfast_enter comes last.
DROP VIEW IF EXISTS @ENTER@;
CREATE VIEW @ENTER@ (key, token) AS
    SELECT key, entered FROM @FENCE@ WHERE entered IS NOT NULL;
CREATE TRIGGER @ON_ENTER@ INSTEAD OF INSERT ON @ENTER@
BEGIN
    SELECT RAISE(ABORT, 'holdfast: enter needs a key and a token')
    WHERE typeof(NEW.key) <> 'text' OR CAST(NEW.token AS INTEGER) IS NOT NEW.token + 0
        OR NEW.token + 0 NOT BETWEEN 1 AND 9007199254740991;
@if HERE
    SELECT RAISE(ABORT, 'holdfast: the lock says more than this guard knows')
    FROM @LOCKS@ AS l, json_each(nullif(l.more, '')) AS m
    WHERE l.key = NEW.key AND m.key NOT IN ('bell', 'claim_ms', 'flags', 'holders', 'limit', 'mode',
        'owner', 'session', 'token');
    SELECT RAISE(ABORT, 'holdfast: this token is over')
    WHERE NOT EXISTS (
        -- A plain hold has an empty `more`. '(ended)': released, and kept taken for a while.
        SELECT 1 FROM @LOCKS@ AS l WHERE l.key = NEW.key AND l.format = 2 AND l.owner <> '' AND (
            coalesce(json_extract(nullif(l.more, ''), '$.token'), l.token) = NEW.token + 0
                AND l.owner <> '(ended)' OR EXISTS (
                SELECT 1 FROM json_each(nullif(l.more, ''), '$.holders') AS o
                WHERE json_extract(o.value, '$.token') = NEW.token + 0
                    AND coalesce(json_extract(o.value, '$.flags'), 0) & 4 = 0)));
@end
    SELECT RAISE(ABORT, 'holdfast: this token is over: a later one has entered')
    FROM @FENCE@ WHERE key = NEW.key AND token > NEW.token + 0;
@if HERE
    -- Of several holders the one with the smallest token is admitted, too.
    INSERT INTO @FENCE@ (key, token, entered)
    SELECT NEW.key, min(coalesce(json_extract(nullif(l.more, ''), '$.token'), l.token), coalesce((
        SELECT min(json_extract(o.value, '$.token'))
        FROM json_each(nullif(l.more, ''), '$.holders') AS o), l.token)), NEW.token + 0
    FROM @LOCKS@ AS l WHERE l.key = NEW.key
@end
@if ELSEWHERE
    INSERT INTO @FENCE@ (key, token, entered) VALUES (NEW.key, NEW.token + 0, NEW.token + 0)
@end
    ON CONFLICT (key) DO UPDATE SET token = max(token, excluded.token), entered = excluded.entered;
END;
CREATE TRIGGER @ON_LEAVE@ INSTEAD OF DELETE ON @ENTER@
BEGIN
    UPDATE @FENCE@ SET entered = NULL WHERE key = OLD.key;
END;
@if TABLE

SELECT t.@COLUMN@ FROM @TABLE@ AS t LIMIT 0; -- is there such a column?
DROP TRIGGER IF EXISTS @ON_INSERT@;
CREATE TRIGGER @ON_INSERT@ AFTER INSERT ON @TABLE@
BEGIN
    SELECT RAISE(ABORT, 'holdfast: written without holdfast_enter')
    WHERE NOT EXISTS (SELECT 1 FROM @FENCE@ AS f
        WHERE f.key = @PREFIX@ || NEW.@COLUMN@ AND f.entered IS NOT NULL);
END;
DROP TRIGGER IF EXISTS @ON_UPDATE@;
CREATE TRIGGER @ON_UPDATE@ AFTER UPDATE ON @TABLE@
BEGIN
    SELECT RAISE(ABORT, 'holdfast: written without holdfast_enter')
    WHERE NOT EXISTS (SELECT 1 FROM @FENCE@ AS f
        WHERE f.key = @PREFIX@ || NEW.@COLUMN@ AND f.entered IS NOT NULL)
        -- The keys are compared, byte for byte: a column may call other values equal.
        OR (@PREFIX@ || OLD.@COLUMN@) COLLATE BINARY IS NOT (@PREFIX@ || NEW.@COLUMN@)
        AND NOT EXISTS (SELECT 1 FROM @FENCE@ AS f
            WHERE f.key = @PREFIX@ || OLD.@COLUMN@ AND f.entered IS NOT NULL);
END;
DROP TRIGGER IF EXISTS @ON_DELETE@;
CREATE TRIGGER @ON_DELETE@ AFTER DELETE ON @TABLE@
BEGIN
    SELECT RAISE(ABORT, 'holdfast: written without holdfast_enter')
    WHERE NOT EXISTS (SELECT 1 FROM @FENCE@ AS f
        WHERE f.key = @PREFIX@ || OLD.@COLUMN@ AND f.entered IS NOT NULL);
END;
@end

COMMIT;
