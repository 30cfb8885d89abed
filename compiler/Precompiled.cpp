//===- Precompiled.cpp - a translation unit for the precompiled header --------===//
