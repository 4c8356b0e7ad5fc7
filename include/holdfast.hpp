/*
 * holdfast.hpp - holdfast.h for C++11 and later: destructors release what was acquired.
 *
 *     holdfast::store store("file:/var/lib/shop/locks");
 *     {
 *         holdfast::lock seat = store.acquire("seats/12/A/5");
 *         sell(seat.token());
 *     } // released here, also when sell() throws
 *
 * A failure throws holdfast::error, except in destructors: if the release in a destructor fails,
 * the lock ends by its lease. Call release() to learn of a failure. A store outlives its locks. A
 * moved-from or released lock is empty: it may be destroyed, assigned to and asked whether it is
 * empty.
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include "holdfast.h"

#include <cstdio>

#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace holdfast
{

class error : public std::runtime_error
{
  public:
    explicit error(const hf_error &e) : std::runtime_error(e.text), code_(e.code), sys_(e.sys) {}
    int code() const noexcept { return code_; } // one of enum hf_code
    int sys() const noexcept { return sys_; }   // errno, or 0

  private:
    int code_, sys_;
};

// The options of an acquisition, all with their defaults; set those that are to differ.
struct options : hf_options {
    options() : hf_options(HF_OPTIONS_INIT) {}
};

// One grant of one key, or empty. Can be moved, not copied.
class lock
{
  public:
    lock() noexcept = default;
    explicit lock(hf_lock *taken) noexcept : lock_(taken) {} // takes ownership
    lock(lock &&other) noexcept = default;
    lock &operator=(lock &&other) noexcept
    {
        if (this == &other) return *this;
        lock_.reset(); // destroyed before the callback that it may still call
        lost_ = std::move(other.lost_);
        lock_ = std::move(other.lock_);
        return *this;
    }
    explicit operator bool() const noexcept { return lock_ != nullptr; }
    hf_lock *get() const noexcept { return lock_.get(); } // for the functions of holdfast.h

    std::uint64_t token() const noexcept { return hf_token(lock_.get()); }
    const char *key() const noexcept { return hf_key(lock_.get()); }
    const char *owner() const noexcept { return hf_owner(lock_.get()); }
    std::int64_t left_ms() const noexcept { return hf_left_ms(lock_.get()); }

    // Releases the key now. The lock is empty afterwards, even if this throws.
    void release()
    {
        hf_error e;
        if (hf_release(lock_.release(), &e)) throw error(e);
    }
    void renew(std::int64_t lease_ms = 0)
    {
        hf_error e;
        if (hf_renew(lock_.get(), lease_ms, &e)) throw error(e);
    }
    // Asks the store whether the lock is held at this moment.
    bool confirm()
    {
        hf_error e;
        int rc = hf_confirm(lock_.get(), &e);
        if (rc && rc != HF_LOST) throw error(e);
        return rc == 0;
    }
    // Raises the fence of the data's guard to the token, before the data are read; see hf_enter.
    void enter(const char *where = nullptr)
    {
        hf_error e;
        if (hf_enter(lock_.get(), where, &e)) throw error(e);
    }
    // Calls `lost` once, on a thread of the library, when the lock is lost before it is released;
    // at once if it is lost already. `lost` must not wait for long, and must not throw; it may
    // release the lock. A lock has one callback: a later call replaces it, an empty function
    // removes it.
    void on_lost(std::function<void()> lost)
    {
        std::shared_ptr<std::function<void()>> next;
        if (lost) next = std::make_shared<std::function<void()>>(std::move(lost));
        std::unique_ptr<callback> place(new callback(next));
        lost_.reserve(lost_.size() + 1); // nothing may throw once the library has the address
        if (int rc = hf_on_lost(lock_.get(), next ? call : nullptr, place.get())) {
            hf_error e = hf_error();
            e.code = rc;
            std::snprintf(e.text, sizeof e.text, "on_lost '%.100s': %s", key(), hf_code_text(rc));
            throw error(e);
        }
        lost_.push_back(std::move(place)); // the callback before this one may be running
    }
    // Returns why the lock was lost; empty while no loss is known.
    std::string lost_reason() const
    {
        hf_error e;
        return hf_lost_reason(lock_.get(), &e) ? e.text : "";
    }

  private:
    friend class event;
    using callback = std::shared_ptr<std::function<void()>>;
    static void call(void *arg, hf_lock *) noexcept
    {
        callback lost = *static_cast<callback *>(arg); // a copy: the callback may destroy its lock
        (*lost)();
    }
    struct release_quietly {
        void operator()(hf_lock *l) const noexcept { hf_release(l, nullptr); }
    };
    std::vector<std::unique_ptr<callback>> lost_; // destroyed after lock_, which may call them
    std::unique_ptr<hf_lock, release_quietly> lock_;
};

// An event that was begun by store::once. If it converts to true, the caller is to run the event,
// which is undone until finish() is called. If false, the event is done, and done_us, done_by and
// result say when, by which owner and with what result.
class event
{
  public:
    explicit event(const hf_once &begun, std::int64_t keep_ms)
        : done_(begun), held_(begun.lock), keep_ms_(keep_ms)
    {
    }
    explicit operator bool() const noexcept { return static_cast<bool>(held_); }
    lock &held() noexcept { return held_; } // the lock, while the event runs
    std::int64_t done_us() const noexcept { return done_.done_us; }
    const char *done_by() const noexcept { return done_.owner; }
    const char *result() const noexcept { return done_.result; }

    // Marks the event as done, and releases the key. If this throws, the event may not be marked;
    // the key is released all the same.
    void finish(const std::string &result = std::string())
    {
        hf_error e;
        if (hf_once_finish(held_.lock_.release(), result.c_str(), keep_ms_, &e)) throw error(e);
    }

  private:
    hf_once done_;
    lock held_;
    std::int64_t keep_ms_;
};

// An acquisition that was started by store::start. The destructor gives it up.
class pending
{
  public:
    pending() noexcept = default;
    pending(pending &&other) noexcept = default;
    pending &operator=(pending &&other) noexcept
    {
        if (this == &other) return *this;
        wait_.reset(); // destroyed before the state that its end is written to
        state_ = std::move(other.state_);
        wait_ = std::move(other.wait_);
        return *this;
    }
    // Waits for the end of the acquisition. Returns the lock, or throws the reason. Call it once.
    lock get() { return state_->ended.get_future().get(); }
    void cancel() noexcept
    {
        hf_wait_cancel(wait_.get());
    } // get() then throws, unless the grant came first

  private:
    friend class store;
    struct state {
        std::promise<lock> ended;
        std::function<void()> done;
    };
    struct free_it {
        void operator()(hf_wait *w) const noexcept { hf_wait_free(w); } // `done` has returned then
    };
    static void end(void *arg, int code, hf_lock *taken, const hf_error *why) noexcept
    {
        state *s = static_cast<state *>(arg);
        if (code)
            s->ended.set_exception(std::make_exception_ptr(error(*why)));
        else
            s->ended.set_value(lock(taken));
        if (s->done) s->done();
    }
    std::unique_ptr<state> state_;
    std::unique_ptr<hf_wait, free_it> wait_; // destroyed first
};

namespace detail
{
// Checks that the string has no NUL, which would end it for the library.
inline const char *plain(const std::string &text, const char *what)
{
    if (text.find('\0') == std::string::npos) return text.c_str();
    hf_error e = hf_error();
    e.code = HF_INVALID;
    std::snprintf(e.text, sizeof e.text, "%s '%.100s': has a NUL character", what, text.c_str());
    throw error(e);
}
} // namespace detail

class store
{
  public:
    // nullptr: $HOLDFAST_STORE, /etc/holdfast/store, or the file in the user's state directory.
    explicit store(const char *url = nullptr, const hf_open_options *how = nullptr)
    {
        hf *opened;
        hf_error e;
        if (hf_open(url, how, &opened, &e)) throw error(e);
        store_.reset(opened);
    }
    explicit store(const std::string &url, const hf_open_options *how = nullptr)
        : store(detail::plain(url, "open"), how)
    {
    }
    hf *get() const noexcept { return store_.get(); } // for the functions of holdfast.h
    const char *url() const noexcept { return hf_store_url(store_.get()); }
    std::string warning() const // the text of hf_store_warning; empty: none
    {
        char text[HF_TEXT_CAP];
        return hf_store_warning(store_.get(), text, sizeof text) ? text : "";
    }

    // Waits for the key, for as long as how.wait_ms says.
    lock acquire(const std::string &key, const options &how = options())
    {
        hf_lock *taken;
        hf_error e;
        if (hf_acquire(store_.get(), detail::plain(key, "acquire"), &how, &taken, &e))
            throw error(e);
        return lock(taken);
    }
    // As acquire, but returns an empty lock if the key wasn't obtained within how.wait_ms.
    lock try_acquire(const std::string &key, options how = no_wait())
    {
        hf_lock *taken;
        hf_error e;
        int rc = hf_acquire(store_.get(), detail::plain(key, "acquire"), &how, &taken, &e);
        if (rc == HF_BUSY || rc == HF_TIMEOUT) return lock();
        if (rc) throw error(e);
        return lock(taken);
    }
    // Acquires all of the keys or none; element i belongs to keys[i].
    std::vector<lock> acquire_all(const std::vector<std::string> &keys,
                                  const options &how = options())
    {
        std::vector<const char *> names;
        for (const std::string &key : keys) names.push_back(detail::plain(key, "acquire"));
        std::vector<hf_lock *> taken(keys.size());
        std::vector<lock> locks(keys.size()); // allocated before any key is held: it may throw
        hf_error e;
        if (hf_acquire_all(store_.get(), names.data(), names.size(), &how, taken.data(), &e))
            throw error(e);
        for (std::size_t i = 0; i < taken.size(); i++) locks[i] = lock(taken[i]);
        return locks;
    }

    // Begins the event `key`: see event. `keep_ms`: for how long it is remembered as done.
    event once(const std::string &key, std::int64_t keep_ms = 7 * 86400000LL,
               const options &how = options())
    {
        hf_once begun;
        hf_error e;
        if (hf_once_begin(store_.get(), detail::plain(key, "once"), keep_ms, &how, &begun, &e))
            throw error(e);
        return event(begun, keep_ms);
    }
    // Acquires without a thread that waits. `done`, if there is one, is called on a thread of the
    // library when pending::get will not wait any more; it must not wait, and must not throw.
    pending start(const std::string &key, const options &how = options(),
                  std::function<void()> done = nullptr)
    {
        pending p;
        hf_wait *wait;
        hf_error e;
        p.state_.reset(new pending::state);
        p.state_->done = std::move(done);
        if (hf_acquire_start(store_.get(), detail::plain(key, "acquire"), &how, pending::end,
                             p.state_.get(), &wait, &e))
            throw error(e);
        p.wait_.reset(wait);
        return p;
    }

  private:
    static options no_wait()
    {
        options how;
        how.wait_ms = 0;
        return how;
    }
    struct close_it {
        void operator()(hf *s) const noexcept { hf_close(s); }
    };
    std::unique_ptr<hf, close_it> store_;
};

} // namespace holdfast
#endif
