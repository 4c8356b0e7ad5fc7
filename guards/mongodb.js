// A guard by Holdfast for documents in MongoDB, for mongosh; drivers send the same commands. See
// doc/guards.md. The token of the last grant that has entered is kept in each document itself.

// Enters, before anything else is read, and returns the document (in .value). E11000 (duplicate
// key) means that the token is over. If there is no document, it is made, to keep the token.
const holdfast_enter = (ID, TOKEN) => db.runCommand({
  "findAndModify": @COLLECTION@,
  "query": {"_id": {"$eq": ID}, @FIELD@: {"$not": {"$gt": TOKEN}}},
  "update": {"$set": {@FIELD@: TOKEN}},
  "upsert": true,
  "new": true,
  "writeConcern": {"w": "majority", "j": true}
});

// Changes the document if no later token has entered meanwhile; otherwise n is 0. UPDATE consists
// of operators, as in {"$set": ...}, and must not change the token. ("multi" makes the server
// refuse an UPDATE that would replace the document with its token.) Don't delete a document,
// because that deletes its token: empty it instead.
const holdfast_write = (ID, TOKEN, UPDATE) => db.runCommand({
  "update": @COLLECTION@,
  "updates": [{"q": {"_id": {"$eq": ID}, @FIELD@: TOKEN}, "u": UPDATE, "multi": true}],
  "writeConcern": {"w": "majority", "j": true}
});
