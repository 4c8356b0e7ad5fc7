-- The shop's own table, as it was found: nothing in it forbids to sell a seat twice.
CREATE TABLE bookings (
    id     INTEGER PRIMARY KEY,
    seat   TEXT NOT NULL,
    buyer  TEXT NOT NULL,
    looked REAL NOT NULL, -- when the buyer saw that the seat was free, in seconds since 1970
    booked REAL NOT NULL  -- when the booking was written
);
