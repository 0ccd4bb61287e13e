"""Long-lived cursors: change streams, tailable cursors, GridFS, cursors by commands."""

import gridfs
from bson import Int64
from pymongo import CursorType, IndexModel

from observe import digest

from . import contents, operation, people


@operation
def change_stream_of_a_collection(db):
    people(db, 3)
    with db.people.watch(full_document="updateLookup", max_await_time_ms=100) as stream:
        db.people.insert_one({"_id": 10})
        db.people.update_one({"_id": 1}, {"$set": {"name": "Ada"}, "$unset": {"age": 1}})
        db.people.replace_one({"_id": 2}, {"new": True})
        db.people.delete_one({"_id": 0})
        db.people.rename("persons")
        return [next(stream) for _ in range(6)]


@operation
def change_stream_with_pipeline_and_resume(db):
    db.create_collection("people", changeStreamPreAndPostImages={"enabled": True})
    pipeline = [{"$match": {"operationType": "update"}}]
    options = {"full_document_before_change": "required", "max_await_time_ms": 100}
    with db.people.watch(pipeline, **options) as stream:
        db.people.insert_one({"_id": 1, "n": 0})
        for _ in range(4):
            db.people.update_one({"_id": 1}, {"$inc": {"n": 1}})
        seen = [next(stream), next(stream)]
        token = stream.resume_token
    with db.people.watch(pipeline, resume_after=token, **options) as stream:
        return [seen, next(stream), next(stream)]


@operation
def change_stream_of_a_database(db):
    db.people.insert_one({"_id": 0})
    with db.watch(max_await_time_ms=100, show_expanded_events=True) as stream:
        db.people.create_index("name")
        db.orders.insert_one({"_id": 1})
        db.drop_collection("orders")
        return [next(stream) for _ in range(4)]


@operation
def change_stream_resumes_after_a_lost_cursor(db):
    db.people.insert_one({"_id": 0})
    with db.people.watch(max_await_time_ms=100) as stream:
        db.people.insert_one({"_id": 1})
        seen = [next(stream)]
        db.command("killCursors", "people", cursors=[stream._cursor.cursor_id])
        db.people.insert_one({"_id": 2})
        return seen + [next(stream)]


@operation
def capped_and_tailable(db):
    log = db.create_collection("log", capped=True, size=4096, max=5)
    log.insert_many([{"_id": i} for i in range(7)])
    cursor = log.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(100)
    seen = [next(cursor) for _ in range(5)]
    log.insert_one({"_id": 7})
    seen.append(next(cursor))
    cursor.close()
    return [seen, contents(log), log.options()]


@operation
def tailable_on_an_uncapped_collection(db):
    return list(people(db).find(cursor_type=CursorType.TAILABLE))


@operation
def gridfs_files(db):
    bucket = gridfs.GridFSBucket(db, chunk_size_bytes=100_000)
    data = bytes(range(256)) * 4_000
    with bucket.open_upload_stream_with_id(1, "data.bin", metadata={"kind": "test"}) as upload:
        upload.write(data)
    bucket.upload_from_stream_with_id(2, "data.bin", b"second")
    with bucket.open_download_stream(1) as download:
        download.seek(150_000)
        part = download.read(10)
    bucket.rename(2, "renamed.bin")
    found = [digest({"d": bucket.open_download_stream(1).read()}), part]
    bucket.delete(1)
    return [found, contents(db.fs.files), db.fs.chunks.count_documents({})]


@operation
def gridfs_missing_file(db):
    return gridfs.GridFSBucket(db).open_download_stream(1).read()


@operation
def cursor_by_hand(db):
    people(db, 10)
    first = db.command("find", "people", batchSize=3, sort={"_id": 1})
    cursor_id = first["cursor"]["id"]
    more = db.command("getMore", cursor_id, collection="people", batchSize=4)
    killed = db.command("killCursors", "people", cursors=[cursor_id, Int64(12345)])
    return [first, more, killed, db.command("getMore", cursor_id, collection="people", check=False)]


@operation
def list_indexes_in_batches(db):
    """A cursor that does not read a collection."""
    db.people.create_indexes([IndexModel(f"field{i}") for i in range(7)])
    first = db.command("listIndexes", "people", cursor={"batchSize": 2})
    cursor_id = first["cursor"]["id"]
    return [first, db.command("getMore", cursor_id, collection="people")]
