-- +goose Up
-- Who a database belongs to: a role, by name, so that a dump can be restored on another server. Members of the role see the database;
-- other roles see no row of it in any table. NULL: every role with rights on the tables sees it, as before this migration.
ALTER TABLE ctxpage_db ADD COLUMN owner text;
ALTER TABLE ctxpage_db ALTER COLUMN owner SET DEFAULT current_user;

ALTER TABLE ctxpage_db ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_db
    USING (owner IS NULL OR owner = current_user OR pg_has_role(to_regrole(quote_ident(owner)), 'USAGE'))
    WITH CHECK (owner = current_user OR pg_has_role(to_regrole(quote_ident(owner)), 'USAGE'));

-- The other tables ask for the row of the database, which the policy above hides. A subquery for each row reads one row by its key;
-- a list of all databases that a role may see would get slower with every tenant.
ALTER TABLE ctxpage_turn ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_turn USING (EXISTS (SELECT FROM ctxpage_db d WHERE d.db = ctxpage_turn.db));
ALTER TABLE ctxpage_records ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_records USING (EXISTS (SELECT FROM ctxpage_db d WHERE d.db = ctxpage_records.db));
ALTER TABLE ctxpage_inbox ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_inbox USING (EXISTS (SELECT FROM ctxpage_db d WHERE d.db = ctxpage_inbox.db));
ALTER TABLE ctxpage_hosts ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_hosts USING (EXISTS (SELECT FROM ctxpage_db d WHERE d.db = ctxpage_hosts.db));
ALTER TABLE ctxpage_images ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_images USING (EXISTS (SELECT FROM ctxpage_db d WHERE d.db = ctxpage_images.db));
ALTER TABLE ctxpage_image_parts ENABLE ROW LEVEL SECURITY;
CREATE POLICY ctxpage_owner ON ctxpage_image_parts USING (EXISTS (SELECT FROM ctxpage_db d WHERE d.db = ctxpage_image_parts.db));

-- +goose Down
DROP POLICY ctxpage_owner ON ctxpage_db;
DROP POLICY ctxpage_owner ON ctxpage_turn;
DROP POLICY ctxpage_owner ON ctxpage_records;
DROP POLICY ctxpage_owner ON ctxpage_inbox;
DROP POLICY ctxpage_owner ON ctxpage_hosts;
DROP POLICY ctxpage_owner ON ctxpage_images;
DROP POLICY ctxpage_owner ON ctxpage_image_parts;
ALTER TABLE ctxpage_db DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_turn DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_records DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_inbox DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_hosts DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_images DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_image_parts DISABLE ROW LEVEL SECURITY;
ALTER TABLE ctxpage_db DROP COLUMN owner;
