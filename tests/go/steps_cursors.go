package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func largeResults(s *scenario) any {
	collection := s.db.Collection("large")
	documents := make([]any, 10_000)
	for i := range documents {
		documents[i] = D("_id", i, "filler", fmt.Sprintf("%1000d", i))
	}
	must(collection.InsertMany(ctx, documents))
	must(collection.InsertOne(ctx, D("_id", -1, "text", strings.Repeat("x", 16_000_000))))
	read := func(settings *options.FindOptionsBuilder) any {
		cursor := must(collection.Find(ctx, M{}, settings.SetSort(M{"_id": 1})))
		hash, count := sha256.New(), 0
		for cursor.Next(ctx) {
			hash.Write(cursor.Current)
			count++
		}
		check(cursor.Err())
		return bson.A{count, hex.EncodeToString(hash.Sum(nil))}
	}
	return bson.A{
		read(options.Find()), read(options.Find().SetBatchSize(777)), read(options.Find().SetSkip(5000).SetLimit(2000)),
	}
}

func abandonedCursors(s *scenario) any {
	collection := s.people(50)
	cursor := must(collection.Find(ctx, M{}, options.Find().SetBatchSize(10).SetSort(M{"_id": 1})))
	cursor.Next(ctx)
	first := string(cursor.Current)
	check(s.db.RunCommand(ctx, D("killCursors", "people", "cursors", bson.A{cursor.ID()})).Err())
	for cursor.Next(ctx) {
	}
	killed := caught(cursor.Err())
	closed := must(collection.Find(ctx, M{}, options.Find().SetBatchSize(2)))
	for range 3 {
		closed.Next(ctx)
	}
	return bson.A{len(first), killed, caught(closed.Close(ctx)), closed.ID()}
}

func tailableCursor(s *scenario) any {
	check(s.db.CreateCollection(ctx, "log", options.CreateCollection().SetCapped(true).SetSizeInBytes(100_000)))
	log := s.db.Collection("log")
	must(log.InsertMany(ctx, []any{M{"_id": 1}, M{"_id": 2}}))
	cursor := must(log.Find(ctx, M{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(100*time.Millisecond)))
	defer cursor.Close(ctx)
	seen := bson.A{cursor.Next(ctx), cursor.Next(ctx), cursor.TryNext(ctx)}
	go s.observer.Collection("log").InsertOne(ctx, M{"_id": 3})
	return append(seen, cursor.Next(ctx), cursor.Current)
}

func unacknowledgedWrites(s *scenario) any {
	s.people(5)
	collection := s.db.Collection("people", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	_, duplicate := collection.InsertOne(ctx, M{"_id": 1}) // an unacknowledged duplicate
	inserted := must(collection.InsertMany(ctx, []any{M{"_id": 50}, M{"_id": 51}}))
	updated := must(collection.UpdateMany(ctx, M{}, M{"$set": M{"seen": true}}))
	deleted := must(collection.DeleteOne(ctx, M{"_id": 0}))
	written := must(collection.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(M{"_id": 60}),
		mongo.NewDeleteOneModel().SetFilter(M{"_id": 2}),
	}))
	// They may use several connections and arrive in any order.
	for {
		ids := fmt.Sprint(distinct(s.observer.Collection("people").Distinct(ctx, "_id", M{})))
		if ids == "[1 3 4 50 51 60]" {
			return bson.A{caught(duplicate), inserted, updated, deleted, written, ids}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func gridFS(s *scenario) any {
	settings := options.GridFSBucket().SetName("files").SetChunkSizeBytes(100_000)
	bucket := s.db.GridFSBucket(settings)
	reading := s.observer.GridFSBucket(settings) // chunks have generated ids and are too large to print
	data := bytes.Repeat([]byte("docward "), 154_320)
	metadata := options.GridFSUpload().SetMetadata(M{"of": "docward"})
	id := must(bucket.UploadFromStream(ctx, "data.bin", bytes.NewReader(data), metadata))
	var whole, named bytes.Buffer
	must(reading.DownloadToStream(ctx, id, &whole))
	must(reading.DownloadToStreamByName(ctx, "data.bin", &named))
	check(bucket.Rename(ctx, id, "renamed.bin"))
	files := all(bucket.Find(ctx, M{}))
	check(bucket.Delete(ctx, id))
	_, gone := bucket.OpenDownloadStream(ctx, id)
	chunks := must(s.db.Collection("files.chunks").CountDocuments(ctx, M{}))
	return bson.A{bytes.Equal(whole.Bytes(), data), named.Len(), files, caught(gone), chunks}
}

// A timed-out operation does not affect the next one. Whether server or client ends it depends on timing.
func timeouts(s *scenario) any {
	s.people(5)
	collection := s.observer.Collection("people")
	slow := M{"$where": "sleep(300) || true"}
	_, command := s.client.Database("admin").Collection("x").Aggregate(ctx, bson.A{M{"$currentOp": M{}}})
	limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, late := collection.Find(limited, slow)
	return bson.A{caught(command), mongo.IsTimeout(late), must(collection.CountDocuments(ctx, M{}))}
}
