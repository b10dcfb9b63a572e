-- +goose Up
-- A database of pages: its name, and what never changes of it. Logins have no right to write the number: it stands for the database in
-- the other tables, and whoever could choose one could take that of another tenant (docs/postgres.md has the rights). Times are those that
-- every program can read: a listing shows the rows of all tenants.
CREATE TABLE ctxpage_db (
    db      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    id      text NOT NULL,
    secret  bytea NOT NULL,
    created timestamptz NOT NULL CHECK (created BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'),
    owner   text DEFAULT current_user -- see the policies below
);

-- Who locks the row of a database may extend its log. The row is never updated: an updated row gets slower to lock while a
-- long snapshot (pg_dump) keeps its old versions.
CREATE TABLE ctxpage_turn (
    db int PRIMARY KEY REFERENCES ctxpage_db ON DELETE CASCADE
);

-- The log: commits (kind 0) and audit leaves of reads (kind 1). chain is SHA-256 over the chain of the record before, seq, kind
-- and body. A leaf that came through the inbox keeps whose it was. There is no foreign key: checking it would lock the row of the
-- database in every commit.
CREATE TABLE ctxpage_records (
    db     int NOT NULL,
    seq    bigint NOT NULL,
    kind   smallint NOT NULL,
    body   bytea NOT NULL,
    chain  bytea NOT NULL,
    host   uuid,
    ticket bigint,
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (db, seq)
);
CREATE UNIQUE INDEX ctxpage_records_ticket ON ctxpage_records (db, host, ticket) WHERE host IS NOT NULL;

-- Audit leaves of reads on their way into the log. They are written without waiting for the disk.
CREATE TABLE ctxpage_inbox (
    db       int NOT NULL,
    id       bigint GENERATED ALWAYS AS IDENTITY,
    host     uuid NOT NULL,
    ticket   bigint NOT NULL,
    question bytea,
    body     bytea NOT NULL,
    PRIMARY KEY (db, id),
    UNIQUE (db, host, ticket)
);

-- The hosts that follow a database, and how far each has come.
CREATE TABLE ctxpage_hosts (
    db      int NOT NULL,
    host    uuid NOT NULL,
    name    text NOT NULL,
    applied bigint NOT NULL,
    purged  bigint NOT NULL DEFAULT 0, -- LSN of the last erase that its cache has no byte of
    held_lsn bigint, -- the oldest moment its readers read at; NULL: there are none
    held_at timestamptz,
    seen    timestamptz NOT NULL CHECK (seen BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'),
    PRIMARY KEY (db, host)
);

-- Images of a follower: its rows and its archive of the audit as of a record. A new follower begins with the newest one, and
-- records that an image covers may go.
CREATE TABLE ctxpage_images (
    db    int NOT NULL,
    seq   bigint NOT NULL,
    bytes bigint NOT NULL,
    host  text NOT NULL,
    at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (db, seq)
);
CREATE TABLE ctxpage_image_parts (
    db   int NOT NULL,
    seq  bigint NOT NULL,
    file text NOT NULL,
    part int NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (db, seq, file, part),
    FOREIGN KEY (db, seq) REFERENCES ctxpage_images ON DELETE CASCADE
);

ALTER TABLE ctxpage_image_parts ALTER COLUMN body SET STORAGE EXTERNAL;

-- Who a database belongs to: a role, by name, so that a dump can be restored on another server. Members of the role see the database;
-- other roles see no row of it in any table. NULL: every role with rights on the tables sees it.
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
DROP TABLE ctxpage_image_parts, ctxpage_images, ctxpage_hosts, ctxpage_inbox, ctxpage_records, ctxpage_turn, ctxpage_db;
