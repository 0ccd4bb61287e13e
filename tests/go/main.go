// A scenario of MongoDB's driver for Go, as in applications.
//
//	scenario steps URI DATABASE   runs the steps below; a direct run and one through docward must
//	                             print the same apart from ids and times
//	scenario rules URI DATABASE   shows docward's rejections and rewriting to an application
//	scenario load URI DATABASE    works until standard input ends; prints the number of operations and the errors
//	scenario codes URI DATABASE   runs operations for each line of standard input; prints their errors
//
// A step returns a result or an error. Each line of output is Extended JSON with the result and every server reply
// that the driver received meanwhile.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	appName          = "go-scenario" // failpoints affect only this scenario's client
	heartbeatTimeout = 20 * time.Second
)

var ctx = context.Background()

// A step runs on an empty database.
type step struct {
	name string
	run  func(*scenario) any
}

type scenario struct {
	client     *mongo.Client
	db         *mongo.Database
	observer   *mongo.Database // of a client without recording, for commands whose number varies
	heartbeats *heartbeats
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: scenario steps|rules|load|codes URI DATABASE")
		os.Exit(64)
	}
	uri, database := os.Args[2], os.Args[3]
	switch os.Args[1] {
	case "steps":
		run(steps, uri, database)
	case "rules":
		run(underRules, uri, database)
	case "load":
		load(uri, database)
	case "codes":
		codes(uri, database)
	}
}

func run(steps []step, uri, database string) {
	recorder := newRecorder()
	s := &scenario{heartbeats: &heartbeats{}}
	s.client = connect(options.Client().ApplyURI(uri).SetAppName(appName).
		SetHeartbeatInterval(500 * time.Millisecond).SetMonitor(recorder.monitor()).
		SetServerMonitor(s.heartbeats.monitor()))
	s.db = s.client.Database(database)
	unrecorded := connect(options.Client().ApplyURI(uri))
	s.observer = unrecorded.Database(database)
	for _, step := range steps {
		check(s.db.Drop(ctx))
		recorder.take()
		outcome := outcomeOf(func() any { return step.run(s) })
		emit(bson.D{{Key: "step", Value: step.name}, {Key: "outcome", Value: outcome}, {Key: "replies", Value: recorder.take()}})
	}
	check(s.db.Drop(ctx))
	check(s.client.Disconnect(ctx))
	check(unrecorded.Disconnect(ctx))
}

func connect(settings *options.ClientOptions) *mongo.Client {
	return must(mongo.Connect(settings))
}

func emit(line bson.D) {
	fmt.Println(string(must(bson.MarshalExtJSON(line, true, false))))
}

// must returns the value, or ends the step with the error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func outcomeOf(work func() any) (outcome bson.D) {
	defer func() {
		if err, ok := recover().(error); ok {
			outcome = bson.D{{Key: "error", Value: failure(err)}}
		}
	}()
	return bson.D{{Key: "result", Value: work()}}
}

// caught returns the error that a step expects.
func caught(err error) any {
	if err == nil {
		return "no error"
	}
	return failure(err)
}

// heartbeats returns the results of the server monitor.
type heartbeats struct {
	awaited     atomic.Int64
	description atomic.Pointer[event.TopologyDescription]
}

func (h *heartbeats) monitor() *event.ServerMonitor {
	return &event.ServerMonitor{
		ServerHeartbeatSucceeded: func(e *event.ServerHeartbeatSucceededEvent) {
			if e.Awaited {
				h.awaited.Add(1)
			}
		},
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) { h.description.Store(&e.NewDescription) },
	}
}
