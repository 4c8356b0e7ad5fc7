// A guard by Holdfast for documents in MongoDB, for mongosh; drivers send the same commands. See
// doc/guards.md. The token of the last grant that has entered is kept in each document itself.

// Enters, before anything else is read, and shows the document (in .value) as it is. E11000, a
// duplicate key: the token is over. A document that isn't there is made, to keep the token.
const holdfast_enter = (ID, TOKEN) => db.runCommand({
  "findAndModify": @COLLECTION@,
  "query": {"_id": {"$eq": ID}, @FIELD@: {"$not": {"$gt": TOKEN}}},
  "update": {"$set": {@FIELD@: TOKEN}},
  "upsert": true,
  "new": true,
  "writeConcern": {"w": "majority", "j": true}
});

// Changes the document if no later token has entered meanwhile: else n is 0. UPDATE is one of
// operators, {"$set": ...} ("multi": else one that replaces the document, and its token, would be
// taken), and leaves the token where it is. Instead of deleting a document, empty it: with it goes
// the token.
const holdfast_write = (ID, TOKEN, UPDATE) => db.runCommand({
  "update": @COLLECTION@,
  "updates": [{"q": {"_id": {"$eq": ID}, @FIELD@: TOKEN}, "u": UPDATE, "multi": true}],
  "writeConcern": {"w": "majority", "j": true}
});
