-- +goose Up

CREATE TABLE orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation  text        NOT NULL UNIQUE, -- core.ChildKey: a second run of a request finds the order of the first
    customer   text        NOT NULL,
    item       text        NOT NULL,
    quantity   int         NOT NULL CHECK (quantity > 0),
    state      text        NOT NULL DEFAULT 'placed' CHECK (state IN ('placed', 'confirmed')),
    version    int         NOT NULL DEFAULT 1, -- of the order's last event
    created_at timestamptz NOT NULL DEFAULT now()
);

-- An event is written by the transaction that it tells of. Versions of an order grow in the order of their commits,
-- because each transaction holds the order's row.
CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the event's id, the same each time it is published
    order_id     bigint      NOT NULL REFERENCES orders,
    version      int         NOT NULL,
    type         text        NOT NULL,
    payload      json        NOT NULL, -- json keeps the text as it is: what is published twice is the same twice
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    UNIQUE (order_id, version)
);

CREATE INDEX outbox_unpublished ON outbox (id) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('outbox', ''); -- delivered by the commit, and not at all without one
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER outbox_notify AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION outbox_notify();

-- The consumer's side. It would be a database of its own where shipping is a service of its own.
CREATE TABLE shipments (
    order_id bigint PRIMARY KEY,
    version  int  NOT NULL, -- of the last event that had its effect
    state    text NOT NULL
);

-- One row for each run of the handler that was committed. Append-only, and nothing in it is unique: work that is done twice shows.
CREATE TABLE shipping_log (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id text        NOT NULL,
    order_id bigint      NOT NULL,
    version  int         NOT NULL,
    fence    bigint      NOT NULL,
    attempt  int         NOT NULL,
    effect   boolean     NOT NULL, -- false: an earlier run had committed the effect, and died before its outcome was kept
    at       timestamptz NOT NULL DEFAULT now()
);

-- +goose Down

DROP TABLE shipping_log, shipments, outbox, orders;
DROP FUNCTION outbox_notify;
