package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const large = 100_000 // only the digest of larger batches is printed

// recorder stores replies as the driver received them. Replies of waiting cursors, and of change streams, are merged,
// because their number depends on timing.
type recorder struct {
	mutex   sync.Mutex
	replies bson.A
	waiting map[int64]bool
	streams map[int64]bool // cursors of change streams
}

func newRecorder() *recorder {
	return &recorder{waiting: map[int64]bool{}, streams: map[int64]bool{}}
}

func (r *recorder) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			if r.waits(e.CommandName, e.Command) {
				r.waiting[e.RequestID] = true
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			if !r.waited(e.RequestID) {
				r.replies = append(r.replies, bson.A{e.CommandName, comparable(e.CommandName, e.Reply)})
			} else if id, ok := e.Reply.Lookup("cursor", "id").AsInt64OK(); ok && e.CommandName == "aggregate" {
				r.streams[id] = true
			}
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			if !r.waited(e.RequestID) {
				r.replies = append(r.replies, bson.A{e.CommandName, failure(e.Failure)})
			}
		},
	}
}

func (r *recorder) waits(name string, command bson.Raw) bool {
	switch name {
	case "aggregate":
		return command.Lookup("pipeline", "0", "$changeStream").Type != 0
	case "getMore":
		return command.Lookup("maxTimeMS").Type != 0 || r.streams[command.Lookup("getMore").AsInt64()]
	case "killCursors":
		return r.streams[command.Lookup("cursors", "0").AsInt64()]
	}
	return false
}

func (r *recorder) waited(request int64) bool {
	waited := r.waiting[request]
	delete(r.waiting, request)
	return waited
}

func (r *recorder) take() bson.A {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	taken := r.replies
	r.replies = bson.A{}
	return taken
}

func comparable(name string, reply bson.Raw) any {
	reply = slices.Clone(reply)
	switch name {
	case "configureFailPoint": // the other fields count all uses since mongod started
		return reply.Lookup("ok")
	case "listCollections": // in the order of a hash table
		var names []string
		for _, each := range must(reply.Lookup("cursor", "firstBatch").Array().Values()) {
			names = append(names, each.Document().Lookup("name").StringValue())
		}
		slices.Sort(names)
		return names
	}
	for _, batch := range []string{"firstBatch", "nextBatch"} {
		if value := reply.Lookup("cursor", batch); len(value.Value) > large {
			return digest(value.Value)
		}
	}
	return reply
}

func digest(data []byte) bson.A {
	sum := sha256.Sum256(data)
	return bson.A{len(data), hex.EncodeToString(sum[:])}
}

// failure returns all error properties that an application can read, except texts about a lost connection.
func failure(err error) bson.D {
	described := bson.D{{Key: "type", Value: fmt.Sprintf("%T", err)}}
	add := func(key string, value any) { described = append(described, bson.E{Key: key, Value: value}) }
	if mongo.IsNetworkError(err) {
		add("lost", true)
	} else {
		add("text", err.Error())
	}
	add("timeout", mongo.IsTimeout(err))
	add("duplicate", mongo.IsDuplicateKeyError(err))
	if server := mongo.ServerError(nil); errors.As(err, &server) {
		add("codes", server.ErrorCodes())
		labels := bson.A{}
		for _, label := range []string{"TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError", "ResumableChangeStreamError"} {
			if server.HasErrorLabel(label) {
				labels = append(labels, label)
			}
		}
		add("labels", labels)
	}
	writes := bson.A{}
	var single mongo.WriteException
	var bulk mongo.BulkWriteException
	var command mongo.CommandError
	switch {
	case errors.As(err, &single):
		for _, each := range single.WriteErrors {
			writes = append(writes, writeError(each))
		}
	case errors.As(err, &bulk):
		for _, each := range bulk.WriteErrors {
			writes = append(writes, writeError(each.WriteError))
		}
	case errors.As(err, &command):
		if command.Raw != nil {
			add("raw", command.Raw)
		}
		add("name", command.Name)
	}
	add("writes", writes)
	return described
}

func writeError(e mongo.WriteError) bson.D {
	described := bson.D{{Key: "index", Value: e.Index}, {Key: "code", Value: e.Code}, {Key: "message", Value: e.Message}}
	if e.Details != nil {
		described = append(described, bson.E{Key: "details", Value: e.Details})
	}
	return described
}
