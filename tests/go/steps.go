package main

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// M is a document of one field, D one of several; fields are written as name, value, name, value.
type M = bson.M

func D(pairs ...any) bson.D {
	document := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		document = append(document, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return document
}

var steps = []step{
	{"insert_and_find", insertAndFind},
	{"update_replace_delete", updateReplaceDelete},
	{"duplicate_key", duplicateKey},
	{"failed_validation", failedValidation},
	{"ordered_bulk_write", orderedBulkWrite},
	{"unordered_bulk_write", unorderedBulkWrite},
	{"bulk_write_of_more_than_one_message", bulkWriteOfMoreThanOneMessage},
	{"bulk_write_of_the_client", bulkWriteOfTheClient},
	{"aggregation", aggregation},
	{"collections_and_indexes", collectionsAndIndexes},
	{"options_and_errors_of_commands", optionsAndErrorsOfCommands},
	{"explain", explain},
	{"large_results", largeResults},
	{"abandoned_cursors", abandonedCursors},
	{"tailable_cursor", tailableCursor},
	{"unacknowledged_writes", unacknowledgedWrites},
	{"grid_fs", gridFS},
	{"two_hundred_at_once", twoHundredAtOnce},
	{"timeouts", timeouts},
	{"retried_write_and_read", retriedWriteAndRead},
	{"write_that_fails_twice", writeThatFailsTwice},
	{"with_transaction", withTransaction},
	{"with_transaction_begun_again", withTransactionBegunAgain},
	{"commit_whose_reply_is_lost", commitWhoseReplyIsLost},
	{"aborted_transaction", abortedTransaction},
	{"error_in_a_transaction", errorInATransaction},
	{"write_conflict", writeConflict},
	{"causal_and_snapshot_sessions", causalAndSnapshotSessions},
	{"change_stream_of_a_collection", changeStreamOfACollection},
	{"change_stream_resumed", changeStreamResumed},
	{"change_stream_of_the_cluster", changeStreamOfTheCluster},
	{"what_the_driver_knows_of_the_servers", whatTheDriverKnows},
}

func (s *scenario) people(count int) *mongo.Collection {
	documents := make([]any, count)
	for i := range documents {
		documents[i] = D("_id", i, "name", "name"+strconv.Itoa(i), "age", 20+i, "tags", bson.A{"a", "t" + strconv.Itoa(i)})
	}
	collection := s.db.Collection("people")
	must(collection.InsertMany(ctx, documents))
	return collection
}

func contents(collection *mongo.Collection) []bson.D {
	return all(collection.Find(ctx, M{}, options.Find().SetSort(M{"_id": 1})))
}

func all(cursor *mongo.Cursor, err error) []bson.D {
	check(err)
	documents := []bson.D{}
	check(cursor.All(ctx, &documents))
	return documents
}

func one(result *mongo.SingleResult) any {
	var document bson.D
	if err := result.Decode(&document); err != nil {
		return failure(err)
	}
	return document
}

// failNext makes the server fail the next `times` commands with these names, from this scenario's client only.
func (s *scenario) failNext(times int, command string, how ...any) {
	name := cmp.Or(os.Getenv("FAILPOINT_APP_NAME"), appName)
	data := append(D("appName", name, "failCommands", bson.A{command}), D(how...)...)
	check(s.client.Database("admin").RunCommand(ctx, D("configureFailPoint", "failCommand", "mode", M{"times": times}, "data", data)).Err())
}

func insertAndFind(s *scenario) any {
	collection := s.people(5)
	ada := D("name", "Ada", "born", time.Unix(0, 0), "notes", nil, "big", int64(1)<<62, "price", must(bson.ParseDecimal128("1.50")))
	return bson.A{
		must(collection.InsertOne(ctx, ada)),
		all(collection.Find(ctx, M{"age": M{"$gt": 21}}, options.Find().SetProjection(M{"name": 1}).SetSort(M{"age": -1}).SetLimit(2))),
		one(collection.FindOne(ctx, M{"_id": 9})),
		must(collection.CountDocuments(ctx, M{"tags": "a"})),
		must(collection.EstimatedDocumentCount(ctx)),
		distinct(collection.Distinct(ctx, "name", M{"age": M{"$lt": 22}})),
	}
}

func distinct(result *mongo.DistinctResult) any {
	var values bson.A
	check(result.Decode(&values))
	return values
}

func updateReplaceDelete(s *scenario) any {
	collection := s.people(5)
	double := mongo.Pipeline{D("$set", M{"double": M{"$multiply": bson.A{"$age", 2}}})}
	return bson.A{
		must(collection.UpdateOne(ctx, M{"_id": 1}, D("$set", M{"name": "Ada"}, "$inc", M{"age": 1}))),
		must(collection.UpdateMany(ctx, M{}, double)),
		must(collection.UpdateOne(ctx, M{"_id": 7}, M{"$setOnInsert": M{"name": "Bob"}}, options.UpdateOne().SetUpsert(true))),
		must(collection.UpdateOne(ctx, M{"_id": 0}, M{"$set": M{"tags.$[t]": "b"}}, options.UpdateOne().SetArrayFilters([]any{M{"t": "a"}}))),
		must(collection.UpdateByID(ctx, 1, M{"$unset": M{"double": ""}})),
		must(collection.ReplaceOne(ctx, M{"_id": 2}, M{"name": "whole"})),
		one(collection.FindOneAndUpdate(ctx, M{"_id": 3}, M{"$push": M{"tags": "x"}}, options.FindOneAndUpdate().SetReturnDocument(options.After))),
		one(collection.FindOneAndReplace(ctx, M{"_id": 4}, M{"name": "other"})),
		one(collection.FindOneAndDelete(ctx, M{"_id": 0})),
		one(collection.FindOneAndDelete(ctx, M{"_id": 0})),
		must(collection.DeleteOne(ctx, M{"_id": 1})),
		must(collection.DeleteMany(ctx, M{"age": M{"$gt": 22}})),
		contents(collection),
	}
}

func duplicateKey(s *scenario) any {
	return must(s.people(5).InsertOne(ctx, M{"_id": 1}))
}

func failedValidation(s *scenario) any {
	check(s.db.CreateCollection(ctx, "checked", options.CreateCollection().SetValidator(M{"n": M{"$gte": 0}})))
	return must(s.db.Collection("checked").InsertOne(ctx, M{"_id": 1, "n": -1}))
}

func orderedBulkWrite(s *scenario) any {
	return must(s.people(5).BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(M{"_id": 10}),
		mongo.NewUpdateOneModel().SetFilter(M{"_id": 1}).SetUpdate(M{"$set": M{"a": 1}}),
		mongo.NewInsertOneModel().SetDocument(M{"_id": 10}),
		mongo.NewDeleteManyModel().SetFilter(M{}),
	}))
}

func unorderedBulkWrite(s *scenario) any {
	collection := s.people(5)
	result, err := collection.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(M{"_id": 1}),
		mongo.NewReplaceOneModel().SetFilter(M{"_id": 20}).SetReplacement(M{"a": 1}).SetUpsert(true),
		mongo.NewUpdateManyModel().SetFilter(M{}).SetUpdate(M{"$inc": M{"age": 1}}),
		mongo.NewInsertOneModel().SetDocument(M{"_id": 2}),
		mongo.NewDeleteOneModel().SetFilter(M{"_id": 3}),
	}, options.BulkWrite().SetOrdered(false))
	return bson.A{result, caught(err), contents(collection)}
}

func bulkWriteOfMoreThanOneMessage(s *scenario) any {
	filler := strings.Repeat("x", 100)
	models := make([]mongo.WriteModel, 100_001)
	for i := range models {
		models[i] = mongo.NewInsertOneModel().SetDocument(D("_id", i, "filler", filler))
	}
	collection := s.db.Collection("many")
	result := must(collection.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)))
	return bson.A{result.InsertedCount, must(collection.CountDocuments(ctx, M{}))}
}

func bulkWriteOfTheClient(s *scenario) any {
	return must(s.client.BulkWrite(ctx, []mongo.ClientBulkWrite{
		{Database: s.db.Name(), Collection: "people", Model: mongo.NewClientInsertOneModel().SetDocument(M{"_id": 1})},
		{Database: s.db.Name(), Collection: "others", Model: mongo.NewClientInsertOneModel().SetDocument(M{"_id": 2})},
	}))
}

func aggregation(s *scenario) any {
	collection := s.people(5)
	return bson.A{
		all(collection.Aggregate(ctx, bson.A{M{"$unwind": "$tags"}, M{"$group": M{"_id": "$tags", "n": M{"$sum": 1}}}, M{"$sort": M{"_id": 1}}})),
		all(collection.Aggregate(ctx, bson.A{M{"$match": M{"_id": M{"$lt": 2}}}, M{"$out": "copy"}})),
		all(collection.Aggregate(ctx, bson.A{M{"$set": M{"merged": true}}, M{"$merge": D("into", "copy", "whenMatched", "merge")}})),
		contents(s.db.Collection("copy")),
	}
}

func collectionsAndIndexes(s *scenario) any {
	collection := s.people(5)
	check(s.db.CreateView(ctx, "views", "people", bson.A{M{"$project": M{"name": 1}}}))
	check(s.db.CreateCollection(ctx, "series", options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("at"))))
	must(s.db.Collection("series").InsertOne(ctx, D("at", time.Unix(0, 0), "n", 1)))
	indexes := collection.Indexes()
	names := must(indexes.CreateMany(ctx, []mongo.IndexModel{
		{Keys: M{"name": 1}, Options: options.Index().SetUnique(true)},
		{Keys: M{"age": -1}, Options: options.Index().SetName("by age")},
	}))
	listed := all(indexes.List(ctx))
	check(indexes.DropOne(ctx, "by age"))
	collections := must(s.db.ListCollectionNames(ctx, M{}))
	found := one(s.db.Collection("views").FindOne(ctx, M{"_id": 1}))
	measured := must(s.db.Collection("series").CountDocuments(ctx, M{}))
	rename := D("renameCollection", s.db.Name()+".people", "to", s.db.Name()+".persons")
	check(s.client.Database("admin").RunCommand(ctx, rename).Err())
	counted := must(s.db.Collection("persons").CountDocuments(ctx, M{}))
	return bson.A{names, listed, len(collections), found, measured, counted}
}

func optionsAndErrorsOfCommands(s *scenario) any {
	collection := s.people(5)
	found := options.Find().SetCollation(&options.Collation{Locale: "en", Strength: 2}).SetComment("a comment").SetHint(M{"_id": 1})
	s.failNext(1, "find", "errorCode", 50)
	_, failed := collection.Find(ctx, M{"name": "NAME1"}, found)
	_, malformed := collection.Find(ctx, M{"$bad": 1})
	_, immutable := collection.UpdateOne(ctx, M{"_id": 1}, M{"$set": M{"_id": 2}})
	_, concern := s.db.Collection("people", options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "no such tag"})).InsertOne(ctx, M{"_id": 70})
	return bson.A{
		caught(failed), all(collection.Find(ctx, M{"name": "NAME1"}, found)), caught(malformed), caught(immutable), caught(concern),
		one(s.db.RunCommand(ctx, M{"noSuchCommand": 1})),
		one(s.db.RunCommand(ctx, D("ping", 1, "comment", "as it is"))),
	}
}

func explain(s *scenario) any {
	collection := s.people(5)
	must(collection.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: M{"age": 1}}))
	run := func(command bson.D) any {
		return one(s.db.RunCommand(ctx, D("explain", command, "verbosity", "queryPlanner")))
	}
	return bson.A{
		run(D("find", "people", "filter", M{"age": M{"$gt": 21}})),
		run(D("delete", "people", "deletes", bson.A{D("q", M{"age": 21}, "limit", 0)})),
		must(collection.CountDocuments(ctx, M{})),
	}
}

func twoHundredAtOnce(s *scenario) any {
	s.people(200)
	found := make(bson.A, 200)
	var group sync.WaitGroup
	for i := range found {
		group.Go(func() { found[i] = one(s.observer.Collection("people").FindOne(ctx, M{"_id": i})) })
	}
	group.Wait()
	return found
}

// The driver streams heartbeats: an awaited one is a reply that the server delayed until a change.
func whatTheDriverKnows(s *scenario) any {
	s.heartbeats.awaited.Store(0)
	for deadline := time.Now().Add(heartbeatTimeout); s.heartbeats.awaited.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	description := s.heartbeats.description.Load()
	known := bson.A{}
	for _, server := range description.Servers {
		known = append(known, D("address", string(server.Addr), "kind", server.Kind, "hosts", server.Hosts, "canonical", string(server.CanonicalAddr), "set", server.SetName, "compression", server.Compression))
	}
	return bson.A{description.Kind, description.SetName, known, s.heartbeats.awaited.Load() > 0}
}
