-- works with code from version 1
-- How often subscriptions have changed: whoever keeps them in memory reads them again when this number moves.
CREATE TABLE subscription_changes (count INTEGER NOT NULL);
INSERT INTO subscription_changes VALUES (0);
CREATE TRIGGER subscription_added AFTER INSERT ON subscriptions BEGIN UPDATE subscription_changes SET count = count + 1; END;
CREATE TRIGGER subscription_changed AFTER UPDATE ON subscriptions BEGIN UPDATE subscription_changes SET count = count + 1; END;
CREATE TRIGGER subscription_deleted AFTER DELETE ON subscriptions BEGIN UPDATE subscription_changes SET count = count + 1; END;
