-- A guard by Holdfast: holdfast_enter(key, token), and tables that refuse writes without it.
-- For the client `mariadb`, in the database of the table. You may run it again; `--undo` prints how
-- to remove it. See doc/guards.md.

SET NAMES utf8mb4;
SET @holdfast_sql_mode = @@sql_mode, sql_mode = 'STRICT_ALL_TABLES';

-- The highest token that has entered each key, and the transaction that entered last.
CREATE TABLE IF NOT EXISTS @FENCE@ (
    `key` VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    entered VARBINARY(80) NOT NULL
) ENGINE=InnoDB;
-- InnoDB writes the number of its transaction into a row here, which is deleted at once.
CREATE TABLE IF NOT EXISTS @PROBE@ (
    connection BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    number BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,
    until_number BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,
    PERIOD FOR SYSTEM_TIME (number, until_number)
) WITH SYSTEM VERSIONING ENGINE=InnoDB;
-- After a dump of another server was restored: its transaction numbers mean nothing here.
UPDATE @FENCE@ SET entered = UUID();

DELIMITER @DOLLAR@
BEGIN NOT ATOMIC
    IF EXISTS (SELECT 1 FROM information_schema.GLOBAL_VARIABLES
        WHERE VARIABLE_NAME = 'WSREP_ON' AND VARIABLE_VALUE = 'ON') THEN
        SIGNAL SQLSTATE '0A000' SET MESSAGE_TEXT =
            'holdfast: a Galera cluster numbers transactions by node: no guard works there';
    END IF;
    IF @@global.log_bin THEN
        SIGNAL SQLSTATE '0A000' SET MESSAGE_TEXT =
            'holdfast: the binary log is on, and no replica could follow: no guard here';
    END IF;
    IF 2 <> (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME IN ('holdfast_fence', 'holdfast_transaction') AND ENGINE = 'InnoDB') THEN
        SIGNAL SQLSTATE '0A000' SET MESSAGE_TEXT =
            'holdfast: holdfast_fence or holdfast_transaction is no InnoDB table';
    END IF;
END@DOLLAR@

-- A session's own TEMPORARY table hides the table of the same name, also from the procedures here.
-- So it is dropped. (1051: there is none.)
CREATE OR REPLACE PROCEDURE @UNHIDE@ ()
MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE CONTINUE HANDLER FOR 1051 BEGIN END;
    DROP TEMPORARY TABLE @FENCE@;
    DROP TEMPORARY TABLE @PROBE@;
@if HERE
    DROP TEMPORARY TABLE @LOCKS@;
@end
END@DOLLAR@

-- Names the transaction: server, connection, InnoDB's number. (With a rollback to a savepoint
-- instead of the DELETE, the calling statement would keep what it had written if it fails.)
CREATE OR REPLACE PROCEDURE @WHICH@ (OUT name VARBINARY(80))
MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    IF @@global.log_bin AND @@sql_log_bin THEN
        SIGNAL SQLSTATE '0A000' SET MESSAGE_TEXT =
            'holdfast: the binary log is on, and no replica could follow: no guard here';
    END IF;
    INSERT INTO @PROBE@ (connection) VALUES (CONNECTION_ID());
    SELECT CONCAT(@@global.server_id, '-', CONNECTION_ID(), '-', p.number) INTO name
    FROM @PROBE@ AS p WHERE p.connection = CONNECTION_ID();
    DELETE FROM @PROBE@ WHERE connection = CONNECTION_ID();
END@DOLLAR@

-- Call it first in a transaction, before anything is read. Until the transaction ends, no other one
-- enters the key. LOST1: the token is over, or was never granted. 40001: another
-- transaction has entered since this one's snapshot was made: roll back, and begin again.
CREATE OR REPLACE PROCEDURE @ENTER@ (
    IN for_key VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN for_token BIGINT)
MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE of_key VARBINARY(2048) DEFAULT CAST(for_key AS BINARY);
    DECLARE lowest BIGINT DEFAULT for_token;
    DECLARE latest, seen, me VARBINARY(80);
    DECLARE why VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE alone BOOLEAN DEFAULT @@autocommit AND NOT @@in_transaction;
@if HERE
    DECLARE now_us BIGINT;
    DECLARE row_format, row_token, row_expires_us BIGINT;
    DECLARE row_owner VARBINARY(1024);
    DECLARE row_more LONGTEXT CHARACTER SET utf8mb4;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET row_owner = '';
@end
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        IF alone THEN
            ROLLBACK AND NO CHAIN NO RELEASE;
        END IF;
        RESIGNAL;
    END;
    IF for_key IS NULL OR for_token IS NULL OR for_token <= 0 OR for_token >= 9007199254740992 THEN
        SIGNAL SQLSTATE 'LOST1' SET MESSAGE_TEXT = 'holdfast: enter needs a key and a token';
    END IF;
@if HERE
    -- At this level a read locks the rows: a renewal of the lock would wait for this transaction.
    IF @@tx_isolation = 'SERIALIZABLE' THEN
        SIGNAL SQLSTATE '0A000' SET MESSAGE_TEXT =
            'holdfast: SERIALIZABLE would lock the lock: enter in another isolation level';
    END IF;
@end
    -- Outside a transaction the call is one of its own: the fence is raised, but no transaction has
    -- entered.
    IF alone THEN
        START TRANSACTION;
    END IF;
    CALL @UNHIDE@ ();
    -- The key's row is locked before anything is read: a snapshot that is made below is later than
    -- what other transactions that entered the key have committed.
    INSERT INTO @FENCE@ (`key`, token, entered) VALUES (of_key, 0, '')
    ON DUPLICATE KEY UPDATE token = token;
    SELECT f.entered INTO latest FROM @FENCE@ AS f WHERE f.`key` = of_key FOR UPDATE;
    -- (SELECT INTO reads the snapshot; SET with a subquery would read what is latest.)
    SELECT MAX(f.entered) INTO seen FROM @FENCE@ AS f WHERE f.`key` = of_key;
    IF NOT latest <=> seen THEN
        SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT =
            'holdfast: the key was entered since this transaction began: try again';
    END IF;
    CALL @WHICH@ (me);
@if HERE
    -- Is the grant in force? Its row isn't locked, so renewals go on; if the grant ends later, the
    -- fence refuses late writes. The clock is the server's even if the session has set `timestamp`,
    -- and is read in UTC: in other zones an hour may come twice, or not at all.
    SET STATEMENT time_zone = '+00:00' FOR
    SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) INTO now_us;
    SELECT l.format, l.owner, l.token, l.expires_us, CONVERT(l.more USING utf8mb4)
    INTO row_format, row_owner, row_token, row_expires_us, row_more
    FROM @LOCKS@ AS l WHERE l.`key` = of_key;
    IF row_owner = '' THEN
        SET lowest = NULL;
    ELSEIF row_format <> 2 THEN
        SET why = 'the lock is of another version', lowest = NULL;
    ELSEIF row_more = '' THEN -- a plain hold
        SET lowest = IF(row_token = for_token AND row_expires_us > now_us, row_token, NULL);
    ELSEIF NOT JSON_VALID(row_more) OR JSON_LENGTH(JSON_REMOVE(row_more, '$.bell', '$.claim_ms',
        '$.flags', '$.holders', '$.limit', '$.mode', '$.owner', '$.session', '$.token')) <> 0 THEN
        SET why = 'the lock says more than this guard knows', lowest = NULL;
    ELSE
        -- Of several holders the one with the smallest token is admitted, too.
        SELECT IF(MAX(h.token = for_token), MIN(h.token), NULL) INTO lowest FROM (
            SELECT COALESCE(CAST(JSON_VALUE(row_more, '$.token') AS SIGNED), row_token) AS token,
                row_expires_us AS expires_us,
                COALESCE(CAST(JSON_VALUE(row_more, '$.flags') AS SIGNED), 0) AS flags
            UNION ALL
            SELECT o.token, o.expires_us, o.flags FROM JSON_TABLE(row_more, '$.holders[*]' COLUMNS (
                token BIGINT PATH '$.token',
                expires_us BIGINT PATH '$.expires_us' DEFAULT '0' ON EMPTY,
                flags BIGINT PATH '$.flags' DEFAULT '0' ON EMPTY)) AS o
        ) AS h WHERE (h.expires_us = 0 OR h.expires_us > now_us) AND h.flags & 4 = 0;
    END IF;
@end
    IF lowest IS NOT NULL THEN
        UPDATE @FENCE@ AS f SET f.token = GREATEST(f.token, lowest), f.entered = me
        WHERE f.`key` = of_key AND f.token <= for_token;
        IF NOT EXISTS (SELECT 1 FROM @FENCE@ AS f
            WHERE f.`key` = of_key AND f.token <= for_token FOR UPDATE) THEN
            SET lowest = NULL,
                why = CONCAT('token ', for_token, ' is over: a later one has entered');
        END IF;
    END IF;
    IF lowest IS NULL THEN
        DELETE FROM @FENCE@ WHERE `key` = of_key AND token = 0;
        SET why = LEFT(CONCAT('holdfast: ', COALESCE(why, CONCAT('token ', for_token, ' is over')),
            ' (', LEFT(for_key, 60), ')'), 128);
        SIGNAL SQLSTATE 'LOST1' SET MESSAGE_TEXT = why;
    END IF;
    IF alone THEN
        COMMIT AND NO CHAIN NO RELEASE;
    END IF;
END@DOLLAR@
@if TABLE

-- LOST2: this transaction hasn't entered the key.
CREATE OR REPLACE PROCEDURE @CHECK@ (IN of_key VARBINARY(4096))
MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE me VARBINARY(80);
    DECLARE why VARCHAR(128) CHARACTER SET utf8mb4;
    CALL @UNHIDE@ ();
    CALL @WHICH@ (me);
    IF me IS NULL OR of_key IS NULL OR NOT EXISTS (SELECT 1 FROM @FENCE@ AS f
        WHERE f.`key` = of_key AND f.entered = me) THEN
        SET why = CONCAT('holdfast: written without holdfast_enter: ',
            COALESCE(LEFT(CONVERT(of_key USING utf8mb4), 60), 'a row without a key'));
        SIGNAL SQLSTATE 'LOST2' SET MESSAGE_TEXT = why;
    END IF;
END@DOLLAR@

BEGIN NOT ATOMIC
    DECLARE guarded VARCHAR(64) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin
        DEFAULT IF(@@lower_case_table_names = 0, @TABLE_TEXT@, LOWER(@TABLE_TEXT@));
    DECLARE why VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    IF EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
        AND BINARY TABLE_NAME = guarded AND TABLE_TYPE = 'SYSTEM VERSIONED') THEN
        SET why = 'it has system versioning, and such a table cannot be guarded';
    ELSEIF NOT EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
        AND BINARY TABLE_NAME = guarded AND TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB') THEN
        SET why = 'that is no InnoDB table of this database: another engine keeps refused writes';
    ELSEIF NOT EXISTS (SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND BINARY TABLE_NAME = guarded AND COLUMN_NAME = @COLUMN_TEXT@) THEN
        SET why = 'the table has no such column';
    ELSEIF EXISTS (SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND BINARY TABLE_NAME = guarded AND COLUMN_NAME = @COLUMN_TEXT@
        AND DATA_TYPE = 'timestamp') THEN
        SET why = 'a timestamp is another text in another time zone: take another column';
    ELSEIF EXISTS (SELECT 1 FROM information_schema.REFERENTIAL_CONSTRAINTS
        WHERE CONSTRAINT_SCHEMA = DATABASE() AND BINARY TABLE_NAME = guarded
        AND (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL'))) THEN
        SET why = 'a foreign key of it cascades, and cascades pass triggers by: use RESTRICT';
    ELSEIF EXISTS (SELECT 1 FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()
        AND TRIGGER_NAME = @BEFORE_INSERT_TEXT@ AND BINARY EVENT_OBJECT_TABLE <> guarded) THEN
        SET why = 'another table had this name when it was guarded: undo its guard first';
    END IF;
    IF why IS NOT NULL THEN
        SET why = LEFT(CONCAT('holdfast: ', guarded, ': ', why), 128);
        SIGNAL SQLSTATE '42000' SET MESSAGE_TEXT = why;
    END IF;
END@DOLLAR@
-- BEFORE refuses a row before it is changed: a function that catches the error has changed nothing.
-- AFTER sees a key that is made behind BEFORE: by AUTO_INCREMENT, or by another trigger.
CREATE OR REPLACE TRIGGER @BEFORE_INSERT@ BEFORE INSERT ON @TABLE@ FOR EACH ROW
    CALL @CHECK@ (CONCAT(@PREFIX@, CONVERT(NEW.@COLUMN@ USING utf8mb4)))@DOLLAR@
CREATE OR REPLACE TRIGGER @AFTER_INSERT@ AFTER INSERT ON @TABLE@ FOR EACH ROW
    CALL @CHECK@ (CONCAT(@PREFIX@, CONVERT(NEW.@COLUMN@ USING utf8mb4)))@DOLLAR@
CREATE OR REPLACE TRIGGER @BEFORE_UPDATE@ BEFORE UPDATE ON @TABLE@ FOR EACH ROW
BEGIN
    CALL @CHECK@ (CONCAT(@PREFIX@, CONVERT(OLD.@COLUMN@ USING utf8mb4)));
    IF NOT BINARY CONVERT(NEW.@COLUMN@ USING utf8mb4) <=> BINARY CONVERT(OLD.@COLUMN@ USING utf8mb4)
    THEN
        CALL @CHECK@ (CONCAT(@PREFIX@, CONVERT(NEW.@COLUMN@ USING utf8mb4)));
    END IF;
END@DOLLAR@
CREATE OR REPLACE TRIGGER @AFTER_UPDATE@ AFTER UPDATE ON @TABLE@ FOR EACH ROW
BEGIN
    IF NOT BINARY CONVERT(NEW.@COLUMN@ USING utf8mb4) <=> BINARY CONVERT(OLD.@COLUMN@ USING utf8mb4)
    THEN
        CALL @CHECK@ (CONCAT(@PREFIX@, CONVERT(NEW.@COLUMN@ USING utf8mb4)));
    END IF;
END@DOLLAR@
CREATE OR REPLACE TRIGGER @BEFORE_DELETE@ BEFORE DELETE ON @TABLE@ FOR EACH ROW
    CALL @CHECK@ (CONCAT(@PREFIX@, CONVERT(OLD.@COLUMN@ USING utf8mb4)))@DOLLAR@
-- Triggers of an earlier guard, from when the table had another name.
BEGIN NOT ATOMIC
    DECLARE guarded VARCHAR(64) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin
        DEFAULT IF(@@lower_case_table_names = 0, @TABLE_TEXT@, LOWER(@TABLE_TEXT@));
    FOR old IN (SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
        WHERE TRIGGER_SCHEMA = DATABASE() AND BINARY EVENT_OBJECT_TABLE = guarded
        AND TRIGGER_NAME LIKE 'holdfast\_guard\_%' AND TRIGGER_NAME NOT IN (@BEFORE_INSERT_TEXT@,
            @AFTER_INSERT_TEXT@, @BEFORE_UPDATE_TEXT@, @AFTER_UPDATE_TEXT@, @BEFORE_DELETE_TEXT@))
    DO
        EXECUTE IMMEDIATE CONCAT('DROP TRIGGER `', old.TRIGGER_NAME, '`');
    END FOR;
END@DOLLAR@
@end
DELIMITER ;
SET sql_mode = @holdfast_sql_mode;
