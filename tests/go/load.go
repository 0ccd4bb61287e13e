package main

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	workers   = 4 // of each kind
	textsKept = 200
)

// load inserts, reads and commits transactions until standard input ends; the driver may retry all of it. It counts
// the operations, so that the stored documents show lost and duplicate ones.
func load(uri, database string) {
	client := connect(options.Client().ApplyURI(uri))
	db := client.Database(database)
	check(db.CreateCollection(ctx, "inserted"))
	check(db.CreateCollection(ctx, "committed"))
	var stopped atomic.Bool
	var mutex sync.Mutex
	done, failures, longest, texts := map[string]int{}, map[string]int{}, map[string]float64{}, []string{}
	var group sync.WaitGroup
	repeat := func(name string, work func() error) {
		for range workers {
			group.Go(func() {
				for !stopped.Load() {
					began := time.Now()
					err := work()
					mutex.Lock()
					longest[name] = max(longest[name], time.Since(began).Seconds())
					if err == nil {
						done[name]++
					} else {
						failures[name]++
						texts = append(texts, name+": "+err.Error())
					}
					mutex.Unlock()
				}
			})
		}
	}
	repeat("insert", func() error {
		_, err := db.Collection("inserted").InsertOne(ctx, M{"at": time.Now()})
		return err
	})
	repeat("read", func() error {
		cursor, err := db.Collection("inserted").Find(ctx, M{}, options.Find().SetLimit(10).SetBatchSize(3))
		if err != nil {
			return err
		}
		var found []bson.M
		return cursor.All(ctx, &found)
	})
	repeat("transaction", func() error {
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(inside context.Context) (any, error) {
			if _, err := db.Collection("committed").InsertOne(inside, M{"part": 1}); err != nil {
				return nil, err
			}
			return db.Collection("committed").InsertOne(inside, M{"part": 2})
		})
		return err
	})
	kinds := func() int {
		mutex.Lock()
		defer mutex.Unlock()
		return len(done)
	}
	for kinds() < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	emit(D("working", true))
	must(io.ReadAll(os.Stdin))
	stopped.Store(true)
	group.Wait()
	count := func(name string) int64 { return must(db.Collection(name).CountDocuments(ctx, M{})) }
	emit(D("done", done, "failures", failures, "texts", texts[:min(len(texts), textsKept)], "longest", longest,
		"stored", bson.A{count("inserted"), count("committed")}))
	check(client.Disconnect(ctx))
}
