/*
 * holdfast.hpp - holdfast.h for C++11 and later: what was acquired is given back.
 *
 *     holdfast::store store("file:/var/lib/shop/locks");
 *     {
 *         holdfast::lock seat = store.acquire("seats/12/A/5");
 *         sell(seat.token());
 *     } // released here, also when sell() throws
 *
 * What fails throws holdfast::error, except destructors: a release that fails there ends by its
 * lease, and whoever wants to know calls release(). A store outlives its locks. A moved-from or
 * released lock is empty: it may be destroyed, assigned to and asked whether it is empty.
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include "holdfast.h"

#include <cstdio>

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

// All defaults; set what is to differ.
struct options : hf_options {
    options() : hf_options(HF_OPTIONS_INIT) {}
};

// One grant of one key, or empty. Can be moved, not copied.
class lock
{
  public:
    lock() noexcept = default;
    explicit lock(hf_lock *taken) noexcept : lock_(taken) {} // takes charge of it
    explicit operator bool() const noexcept { return lock_ != nullptr; }
    hf_lock *get() const noexcept { return lock_.get(); } // for the functions of holdfast.h

    std::uint64_t token() const noexcept { return hf_token(lock_.get()); }
    const char *key() const noexcept { return hf_key(lock_.get()); }
    const char *owner() const noexcept { return hf_owner(lock_.get()); }
    std::int64_t left_ms() const noexcept { return hf_left_ms(lock_.get()); }

    // Gives the key back now; empty afterwards, whether it throws or not.
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
    // Is the lock held at this moment? Asks the store.
    bool confirm()
    {
        hf_error e;
        int rc = hf_confirm(lock_.get(), &e);
        if (rc && rc != HF_LOST) throw error(e);
        return rc == 0;
    }
    // Shows the token to the guard of the data, before they are read; see hf_enter.
    void enter(const char *where = nullptr)
    {
        hf_error e;
        if (hf_enter(lock_.get(), where, &e)) throw error(e);
    }

  private:
    struct release_quietly {
        void operator()(hf_lock *l) const noexcept { hf_release(l, nullptr); }
    };
    std::unique_ptr<hf_lock, release_quietly> lock_;
};

namespace detail
{
// A string may hold a NUL, which would end it for the library.
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
    // nullptr: $HOLDFAST_STORE, or the file in the user's state directory.
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

    // Waits for its turn, for as long as how.wait_ms says.
    lock acquire(const std::string &key, const options &how = options())
    {
        hf_lock *taken;
        hf_error e;
        if (hf_acquire(store_.get(), detail::plain(key, "acquire"), &how, &taken, &e))
            throw error(e);
        return lock(taken);
    }
    // The same, but an empty lock if it wasn't obtained within how.wait_ms.
    lock try_acquire(const std::string &key, options how = no_wait())
    {
        hf_lock *taken;
        hf_error e;
        int rc = hf_acquire(store_.get(), detail::plain(key, "acquire"), &how, &taken, &e);
        if (rc == HF_BUSY || rc == HF_TIMEOUT) return lock();
        if (rc) throw error(e);
        return lock(taken);
    }
    // All of them or none; element i belongs to keys[i].
    std::vector<lock> acquire_all(const std::vector<std::string> &keys,
                                  const options &how = options())
    {
        std::vector<const char *> names;
        for (const std::string &key : keys) names.push_back(detail::plain(key, "acquire"));
        std::vector<hf_lock *> taken(keys.size());
        std::vector<lock> locks(keys.size()); // before anything is held: this may throw
        hf_error e;
        if (hf_acquire_all(store_.get(), names.data(), names.size(), &how, taken.data(), &e))
            throw error(e);
        for (std::size_t i = 0; i < taken.size(); i++) locks[i] = lock(taken[i]);
        return locks;
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
