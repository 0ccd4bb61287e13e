package main

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Uses the rules of tests/python/compiled_drivers.py: `orders` rejects replacements, `devices` has timestamps,
// `books` has a bound. `checked` has a validator on the server that rejects the same as the rule of `orders`.
var underRules = []step{
	{"rejected", func(s *scenario) any { return rejected(s, "orders") }},
	{"rejected_by_the_server", func(s *scenario) any {
		validator := M{"replaced": M{"$exists": false}}
		check(s.db.CreateCollection(ctx, "checked", options.CreateCollection().SetValidator(validator)))
		return rejected(s, "checked")
	}},
	{"rejected_without_acknowledgement", func(s *scenario) any {
		silent := s.db.Collection("orders", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
		must(s.db.Collection("orders").InsertOne(ctx, M{"_id": 1}))
		_, err := silent.ReplaceOne(ctx, M{"_id": 1}, M{"replaced": true})
		return bson.A{caught(err), contents(s.db.Collection("orders"))}
	}},
	{"timestamps", func(s *scenario) any {
		devices := s.db.Collection("devices")
		set := func(at, level int) any {
			update := M{"$set": D("level", level, "at", bson.DateTime(at))}
			return must(devices.UpdateOne(ctx, M{"_id": 1}, update, options.UpdateOne().SetUpsert(true)))
		}
		return bson.A{set(2000, 2), set(3000, 3), set(1000, 1), contents(devices)}
	}},
	{"bounds", func(s *scenario) any {
		books := s.db.Collection("books")
		must(books.InsertOne(ctx, M{"_id": 1, "available": 1}))
		lend := func() any { return must(books.UpdateOne(ctx, M{"_id": 1}, M{"$inc": M{"available": -1}})) }
		return bson.A{lend(), lend(), contents(books)}
	}},
}

func rejected(s *scenario, name string) any {
	orders := s.db.Collection(name)
	must(orders.InsertOne(ctx, M{"_id": 1}))
	whole := M{"replaced": true}
	_, single := orders.ReplaceOne(ctx, M{"_id": 1}, whole)
	found := orders.FindOneAndReplace(ctx, M{"_id": 1}, whole).Err()
	bulk := func(ordered bool) any {
		result, err := orders.BulkWrite(ctx, []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(M{"_id": bson.NewObjectID()}),
			mongo.NewReplaceOneModel().SetFilter(M{"_id": 1}).SetReplacement(whole),
			mongo.NewUpdateOneModel().SetFilter(M{"_id": 1}).SetUpdate(M{"$inc": M{"n": 1}}),
		}, options.BulkWrite().SetOrdered(ordered))
		return bson.A{result.InsertedCount, result.ModifiedCount, caught(err)}
	}
	session := must(s.client.StartSession())
	defer session.EndSession(ctx)
	attempts := 0
	_, transaction := session.WithTransaction(ctx, func(inside context.Context) (any, error) {
		attempts++
		must(orders.InsertOne(inside, M{"_id": "lost"}))
		return orders.ReplaceOne(inside, M{"_id": 1}, whole)
	})
	after := must(orders.CountDocuments(ctx, M{"_id": "lost"}))
	return D("single", caught(single), "found", caught(found), "ordered", bulk(true), "unordered", bulk(false),
		"attempts", attempts, "transaction", caught(transaction), "lost", after)
}
