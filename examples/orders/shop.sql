-- The shop's tables, and a few orders to ask about.

CREATE TABLE orders (
	id           TEXT PRIMARY KEY,
	item         TEXT NOT NULL,
	cents        INTEGER NOT NULL CHECK (cents > 0), -- in euros
	status       TEXT NOT NULL CHECK (status IN ('processing', 'shipped', 'delivered', 'cancelled')),
	placed_on    TEXT NOT NULL,
	expected_on  TEXT,
	delivered_on TEXT
) STRICT;

-- An order is refunded at most once, whoever asks and however often.
CREATE TABLE refunds (
	id        INTEGER PRIMARY KEY,
	order_id  TEXT NOT NULL UNIQUE REFERENCES orders (id),
	call_id   TEXT NOT NULL, -- the tool call that asked for it
	reason    TEXT NOT NULL CHECK (reason IN ('damaged', 'not_received', 'changed_mind')),
	cents     INTEGER NOT NULL CHECK (cents > 0),
	issued_at TEXT NOT NULL
) STRICT;

INSERT INTO orders (id, item, cents, status, placed_on, expected_on, delivered_on) VALUES
	('ORD-2024-0040', 'espresso cups, set of 4',  3800, 'delivered',  '2024-11-12', '2024-11-16', '2024-11-15'),
	('ORD-2024-0041', 'stoneware teapot',         6450, 'delivered',  '2024-11-18', '2024-11-22', '2024-11-22'),
	('ORD-2024-0042', 'pour-over kettle',         8900, 'shipped',    '2024-11-25', '2024-12-02', NULL),
	('ORD-2024-0043', 'burr grinder',            12900, 'processing', '2024-11-28', '2024-12-05', NULL),
	('ORD-2024-0044', 'paper filters, 200',       1250, 'cancelled',  '2024-11-29', NULL,         NULL);
