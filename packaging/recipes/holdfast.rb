# The formula for Homebrew on Linux. Not run by the tests: see README.md beside this file.
class Holdfast < Formula
  desc "Locks by key for programs that share a file or a database"
  homepage "https://holdfast.invalid"
  url "https://holdfast.invalid/holdfast_0.1.0.orig.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "python@3.13" => :build
  depends_on "hiredis"
  depends_on "jansson"
  depends_on "libpq"
  depends_on :linux
  depends_on "openssl@3"
  depends_on "sqlite"

  def install
    system "meson", "setup", "build", "-Dtests=false", *std_meson_args
    system "meson", "compile", "-C", "build"
    system "meson", "install", "-C", "build"
  end

  test do
    ENV["HOLDFAST_STORE"] = "file:#{testpath}/locks"
    assert_match "alone", shell_output("#{bin}/holdfast run key -- echo alone")
    system bin/"holdfast", "doctor"
  end
end
