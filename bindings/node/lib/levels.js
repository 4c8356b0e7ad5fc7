// Where each priority begins in a line that has several: a skip list, the highest priority first. A
// search takes about log(n) steps for n priorities.
'use strict';

const HEIGHT = 12; // a quarter of the levels of each height reach the next one

class Level {
    constructor(first, height) {
        this.priority = first.priority;
        this.first = first; // the first waiter of this level
        this.after = new Array(height).fill(null); // the next level of each height
    }
}

class Levels {
    #head = { after: new Array(HEIGHT).fill(null) };

    // `first`: the first waiter of a line that has had one priority so far.
    constructor(first) {
        this.put(first);
    }

    // Returns, for each height, the last level above this priority.
    #above(priority) {
        const all = new Array(HEIGHT);
        let at = this.#head;
        for (let height = HEIGHT - 1; height >= 0; height--) {
            while (at.after[height] && at.after[height].priority > priority)
                at = at.after[height];
            all[height] = at;
        }
        return all;
    }

    // Adds a waiter. Returns the waiter that it has to stand before; null: it is the last one.
    put(entry) {
        const above = this.#above(entry.priority);
        const next = above[0].after[0];
        if (next?.priority === entry.priority) return next.after[0]?.first ?? null;
        let height = 1;
        while (height < HEIGHT && Math.random() < 0.25) height++;
        const level = new Level(entry, height);
        while (height--) {
            level.after[height] = above[height].after[height];
            above[height].after[height] = level;
        }
        return next?.first ?? null;
    }

    // Removes a waiter that is the first of its level. Returns whether there are still several
    // levels.
    take({ priority, next }) {
        const above = this.#above(priority);
        const level = above[0].after[0];
        if (next?.priority === priority) level.first = next;
        else level.after.forEach((after, height) => (above[height].after[height] = after));
        return this.#head.after[0].after[0] !== null;
    }
}

module.exports = { Levels };
