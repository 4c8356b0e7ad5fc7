"""mongoelector's MongoLocker as a competitor:  peer_mongoelector.py URL LEASE_MS"""
import sys

import pymongo
from mongoelector import MongoLocker

from competitor import compete

database = pymongo.MongoClient(sys.argv[1]).get_default_database()
lease_s = int(sys.argv[2]) / 1000 or 30
locks = {}


def take(key):
    if key not in locks:
        locks[key] = MongoLocker(key, database, ttl=lease_s)
    locks[key].acquire()
    return locks[key]


MongoLocker('warm', database)    # makes the index
compete(take, lambda lock: lock.release())
