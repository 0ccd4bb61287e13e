package main

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func retriedWriteAndRead(s *scenario) any {
	collection := s.people(5)
	s.failNext(1, "insert", "closeConnection", true)
	inserted := must(collection.InsertOne(ctx, M{"_id": "again"}))
	s.failNext(1, "find", "closeConnection", true)
	return bson.A{inserted, contents(collection)}
}

func writeThatFailsTwice(s *scenario) any {
	collection := s.people(5)
	s.failNext(2, "update", "errorCode", 91, "errorLabels", bson.A{"RetryableWriteError"})
	return must(collection.UpdateOne(ctx, M{"_id": 1}, M{"$inc": M{"age": 1}}))
}

// transaction runs `work` in a transaction, which the driver repeats if necessary.
func (s *scenario) transaction(work func(context.Context) any) any {
	session := must(s.client.StartSession())
	defer session.EndSession(ctx)
	return must(session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		var result any
		err := func() (err error) {
			defer func() {
				if raised, ok := recover().(error); ok {
					err = raised
				}
			}()
			result = work(ctx)
			return nil
		}()
		return result, err
	}))
}

func withTransaction(s *scenario) any {
	collection := s.people(5)
	result := s.transaction(func(inside context.Context) any {
		must(collection.InsertOne(inside, M{"_id": "new"}))
		must(collection.UpdateOne(inside, M{"_id": 1}, M{"$set": M{"age": 0}}))
		return bson.A{must(collection.CountDocuments(inside, M{})), must(collection.CountDocuments(ctx, M{}))}
	})
	return bson.A{result, contents(collection)}
}

func withTransactionBegunAgain(s *scenario) any {
	collection := s.people(5)
	s.failNext(1, "commitTransaction", "errorCode", 251, "errorLabels", bson.A{"TransientTransactionError"})
	attempts := 0
	s.transaction(func(inside context.Context) any {
		attempts++
		return must(collection.UpdateOne(inside, M{"_id": 1}, M{"$inc": M{"age": 1}}))
	})
	return bson.A{attempts, one(collection.FindOne(ctx, M{"_id": 1}))}
}

func commitWhoseReplyIsLost(s *scenario) any {
	collection := s.people(5)
	s.failNext(1, "commitTransaction", "closeConnection", true)
	s.transaction(func(inside context.Context) any { return must(collection.DeleteOne(inside, M{"_id": 1})) })
	return contents(collection)
}

func begin(s *scenario) (*mongo.Session, context.Context) {
	session := must(s.client.StartSession())
	check(session.StartTransaction())
	return session, mongo.NewSessionContext(ctx, session)
}

func abortedTransaction(s *scenario) any {
	collection := s.people(5)
	session, inside := begin(s)
	must(collection.DeleteMany(inside, M{}))
	check(session.AbortTransaction(ctx))
	session.EndSession(ctx)
	return contents(collection)
}

func errorInATransaction(s *scenario) any {
	collection := s.people(5)
	session, inside := begin(s)
	_, first := collection.InsertOne(inside, M{"_id": 1})
	_, second := collection.InsertOne(inside, M{"_id": 30})
	session.EndSession(ctx)
	return bson.A{caught(first), caught(second), must(collection.CountDocuments(ctx, M{}))}
}

func writeConflict(s *scenario) any {
	collection := s.people(5)
	first, inFirst := begin(s)
	second, inSecond := begin(s)
	must(collection.UpdateOne(inFirst, M{"_id": 1}, M{"$set": M{"by": 1}}))
	_, conflict := collection.UpdateOne(inSecond, M{"_id": 1}, M{"$set": M{"by": 2}})
	check(first.CommitTransaction(ctx))
	first.EndSession(ctx)
	second.EndSession(ctx)
	return bson.A{caught(conflict), one(collection.FindOne(ctx, M{"_id": 1}))}
}

func causalAndSnapshotSessions(s *scenario) any {
	s.people(5)
	majority := options.Collection().SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority())
	collection := s.db.Collection("people", majority)
	var causal any
	before, after := int64(0), int64(0)
	check(s.client.UseSessionWithOptions(ctx, options.Session().SetCausalConsistency(true), func(inside context.Context) error {
		must(collection.InsertOne(inside, M{"_id": 40}))
		causal = one(collection.FindOne(inside, M{"_id": 40}))
		return nil
	}))
	check(s.client.UseSessionWithOptions(ctx, options.Session().SetSnapshot(true), func(inside context.Context) error {
		plain := s.db.Collection("people")
		before = must(plain.CountDocuments(inside, M{}))
		must(plain.DeleteMany(ctx, M{}))
		after = must(plain.CountDocuments(inside, M{}))
		return nil
	}))
	return bson.A{causal, before, after}
}

const awaited = 100 * time.Millisecond

var insertsOnly = mongo.Pipeline{D("$match", M{"operationType": "insert"})}

func take(stream *mongo.ChangeStream, count int) bson.A {
	changes := bson.A{}
	for len(changes) < count && stream.Next(ctx) {
		changes = append(changes, bson.Raw(append([]byte{}, stream.Current...)))
	}
	check(stream.Err())
	return changes
}

func changeStreamOfACollection(s *scenario) any {
	collection := s.people(2)
	stream := must(collection.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup).SetMaxAwaitTime(awaited)))
	defer stream.Close(ctx)
	must(collection.InsertOne(ctx, M{"_id": 10}))
	must(collection.UpdateOne(ctx, M{"_id": 1}, M{"$set": M{"name": "Ada"}}))
	must(collection.ReplaceOne(ctx, M{"_id": 0}, M{"new": true}))
	must(collection.DeleteOne(ctx, M{"_id": 0}))
	check(collection.Drop(ctx))
	return bson.A{take(stream, 6), stream.TryNext(ctx), caught(stream.Err())}
}

func changeStreamResumed(s *scenario) any {
	collection := s.people(1)
	first := must(s.db.Watch(ctx, insertsOnly, options.ChangeStream().SetMaxAwaitTime(awaited)))
	must(collection.InsertMany(ctx, []any{M{"_id": 1}, M{"_id": 2}, M{"_id": 3}}))
	change := take(first, 1)
	token := append(bson.Raw{}, first.ResumeToken()...)
	check(first.Close(ctx))
	second := must(s.db.Watch(ctx, insertsOnly, options.ChangeStream().SetMaxAwaitTime(awaited).SetResumeAfter(token).SetBatchSize(1)))
	defer second.Close(ctx)
	s.failNext(1, "getMore", "closeConnection", true)
	return bson.A{change, take(second, 2)}
}

func changeStreamOfTheCluster(s *scenario) any {
	s.people(1)
	ours := mongo.Pipeline{D("$match", M{"ns.db": s.db.Name()})}
	stream := must(s.client.Watch(ctx, ours, options.ChangeStream().SetMaxAwaitTime(awaited)))
	defer stream.Close(ctx)
	go s.observer.Collection("people").InsertMany(ctx, []any{M{"_id": 1}, M{"_id": 2}})
	return take(stream, 2)
}
