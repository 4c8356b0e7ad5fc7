SET NAMES utf8mb4;
SET @holdfast_sql_mode = @@sql_mode, sql_mode = 'STRICT_ALL_TABLES';
DELIMITER @DOLLAR@
@if TABLE
-- Removes Holdfast's guard of one table. holdfast_enter stays, for other tables: `guard mariadb
-- --undo` without a table removes that.
BEGIN NOT ATOMIC
    DECLARE guarded VARCHAR(64) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin
        DEFAULT IF(@@lower_case_table_names = 0, @TABLE_TEXT@, LOWER(@TABLE_TEXT@));
    IF NOT EXISTS (SELECT 1 FROM information_schema.TRIGGERS
        WHERE TRIGGER_SCHEMA = DATABASE() AND BINARY EVENT_OBJECT_TABLE = guarded
        AND TRIGGER_NAME LIKE 'holdfast\_guard\_%') THEN
        SELECT CONCAT('holdfast: "', guarded, '" has no guard: nothing is undone') AS said;
    END IF;
    FOR old IN (SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
        WHERE TRIGGER_SCHEMA = DATABASE() AND BINARY EVENT_OBJECT_TABLE = guarded
        AND TRIGGER_NAME LIKE 'holdfast\_guard\_%')
    DO
        EXECUTE IMMEDIATE CONCAT('DROP TRIGGER `', old.TRIGGER_NAME, '`');
    END FOR;
END@DOLLAR@
@end
@if NO_TABLE
-- Removes what all guards of Holdfast share. First remove the guard of each table, by its own undo.
BEGIN NOT ATOMIC
    DECLARE guarded TEXT CHARACTER SET utf8mb4 DEFAULT (
        SELECT GROUP_CONCAT(DISTINCT EVENT_OBJECT_TABLE SEPARATOR ', ')
        FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()
        AND TRIGGER_NAME LIKE 'holdfast\_guard\_%');
    IF guarded IS NOT NULL THEN
        SET guarded = CONCAT('holdfast: the guard of ', LEFT(guarded, 64),
            ' needs it: undo that first');
        SIGNAL SQLSTATE '42000' SET MESSAGE_TEXT = guarded;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'holdfast_fence') THEN
        SELECT 'holdfast: there is no holdfast_fence: nothing is undone' AS said;
    END IF;
END@DOLLAR@
DROP PROCEDURE IF EXISTS @CHECK@@DOLLAR@
DROP PROCEDURE IF EXISTS @ENTER@@DOLLAR@
DROP PROCEDURE IF EXISTS @WHICH@@DOLLAR@
DROP PROCEDURE IF EXISTS @UNHIDE@@DOLLAR@
DROP TABLE IF EXISTS @PROBE@@DOLLAR@
DROP TABLE IF EXISTS @FENCE@@DOLLAR@
@end
DELIMITER ;
SET sql_mode = @holdfast_sql_mode;
