package main

import (
	"bufio"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// codes runs each operation for each line of standard input, and prints what an application sees of its error.
func codes(uri, database string) {
	client := connect(options.Client().ApplyURI(uri))
	things := client.Database(database).Collection("things")
	operations := []struct {
		name string
		run  func() error
	}{
		{"insert", func() error {
			_, err := things.InsertOne(ctx, M{"a": 1})
			return err
		}},
		{"bulk", func() error {
			_, err := things.BulkWrite(ctx, []mongo.WriteModel{mongo.NewInsertOneModel().SetDocument(M{"a": 1})})
			return err
		}},
		{"find", func() error { return things.FindOne(ctx, M{}).Err() }},
		{"findAndModify", func() error {
			return things.FindOneAndUpdate(ctx, M{"_id": 1}, M{"$set": M{"a": 1}}).Err()
		}},
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		for _, operation := range operations {
			began, text := time.Now(), "no error"
			if err := operation.run(); err != nil {
				text = err.Error()
			}
			emit(D("operation", operation.name, "text", text, "seconds", time.Since(began).Seconds()))
		}
	}
	check(client.Disconnect(ctx))
}
