-- works with code from version 1
-- How often subscriptions have changed: whoever keeps them in memory reads them again when this number moves.
CREATE TABLE subscription_changes (count bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO subscription_changes VALUES (0);
CREATE FUNCTION count_subscription_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE subscription_changes SET count = count + 1;
    RETURN NULL;
END
$$;
CREATE TRIGGER subscription_changes AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON subscriptions
    FOR EACH STATEMENT EXECUTE FUNCTION count_subscription_change();
