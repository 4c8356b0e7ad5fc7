/*
 * sign.h - firestore: a JSON Web Token (RFC 7519) signed with an RSA key and SHA-256 (RS256).
 *
 * Thread safety: any thread that is inside the fork gate (kit/fork_gate.h), because OpenSSL has
 * locks of the whole process.
 */
#ifndef HF_FIRESTORE_SIGN_H
#define HF_FIRESTORE_SIGN_H

/*
 * Signs the claims, a JSON text. `key` is a private key in PEM; `key_id` names it in the header,
 * NULL: no name.
 *
 * Returns:
 *   0           *ret is the token, to be freed by hf__rest_forget
 *   HF_INVALID  the key is no RSA key that can sign, or it is encrypted
 *   HF_NOMEM
 */
int hf__fs_sign(const char *claims, const char *key, const char *key_id, char **ret);

#endif
