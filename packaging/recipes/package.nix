# The package for Nix. Not run by the tests: see README.md beside this file.
{ lib, stdenv, meson, ninja, pkg-config, python3, hiredis, jansson, libpq, openssl, sqlite }:

stdenv.mkDerivation {
  pname = "holdfast";
  version = "0.1.0";
  src = lib.cleanSource ../..;
  nativeBuildInputs = [ meson ninja pkg-config python3 ];
  buildInputs = [ hiredis jansson libpq openssl sqlite ];
  mesonFlags = [ "-Dtests=false" ];
  meta = {
    description = "Locks by key for programs that share a file or a database";
    license = lib.licenses.asl20;
    platforms = lib.platforms.linux;
    mainProgram = "holdfast";
  };
}
