package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Host is a follower of a database.
type Host struct {
	Name    string    `json:"name"`
	Applied uint64    `json:"applied"` // record of the log, when it was last seen
	Behind  uint64    `json:"behind"`  // records
	Seen    time.Time `json:"seen"`    // by the server's clock
	Live    bool      `json:"live"`    // it was seen in the last 15 s
}

// Listed is a database on a server.
type Listed struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	First   uint64    `json:"first_record"` // that the server still has
	Last    uint64    `json:"last_record"`
	Inbox   int       `json:"inbox"` // audit leaves that no turn has numbered yet
	Image   uint64    `json:"image_record"`
	Bytes   int64     `json:"image_bytes"`
	Hosts   []Host    `json:"hosts"`
}

const sqlList = `SELECT d.db, d.name, d.id, d.created,
	coalesce((SELECT min(seq) FROM ctxpage_records r WHERE r.db = d.db), 0), coalesce((SELECT max(seq) FROM ctxpage_records r WHERE r.db = d.db), 0),
	(SELECT count(*) FROM ctxpage_inbox i WHERE i.db = d.db),
	coalesce((SELECT max(seq) FROM ctxpage_images m WHERE m.db = d.db), 0), coalesce((SELECT max(bytes) FROM ctxpage_images m WHERE m.db = d.db), 0)
	FROM ctxpage_db d ORDER BY d.name`

// List shows the databases in the schema of a server, by name, with the hosts that follow them. It follows none itself.
// ErrSchema.
func List(ctx context.Context, dsn string) ([]Listed, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("pgstore: connect: %w", err)
	}
	defer conn.Close(context.Background())
	if err := checkSchema(ctx, conn); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, sqlList)
	if err != nil {
		return nil, fmt.Errorf("pgstore: list: %w", err)
	}
	var nums []int
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Listed, err error) {
		var num int
		var first, last, image int64
		err = row.Scan(&num, &l.Name, &l.ID, &l.Created, &first, &last, &l.Inbox, &image, &l.Bytes)
		l.First, l.Last, l.Image = uint64(first), uint64(last), uint64(image)
		nums = append(nums, num)
		return l, err
	})
	for i := 0; i < len(list) && err == nil; i++ {
		list[i].Hosts, err = hostsOf(ctx, conn, nums[i], list[i].Last)
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: list: %w", err)
	}
	return list, nil
}

func hostsOf(ctx context.Context, conn *pgx.Conn, db int, last uint64) ([]Host, error) {
	rows, err := conn.Query(ctx, "SELECT name, applied, seen, seen > now() - $2::interval FROM ctxpage_hosts WHERE db = $1 ORDER BY name, host", db, 3*heartbeat)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Host, err error) {
		var applied int64
		err = row.Scan(&h.Name, &applied, &h.Seen, &h.Live)
		h.Applied = uint64(applied)
		h.Behind = last - min(last, h.Applied)
		return h, err
	})
}
